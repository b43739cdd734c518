import { randomInt } from 'node:crypto';
import { randomBase62 } from '../../lib/base62.js';

const FIRST =
  'amber azure brave bright brisk calm clear clever coral crisp eager fair fleet fresh gentle glad golden grand green hardy jolly keen kind lively lucid mellow merry mild neat noble proud quick quiet rapid ruby sharp silver smart snowy solid steady sunny swift tidy vivid warm wise witty';
const SECOND =
  'acorn anchor aspen badger beacon birch brook canyon cedar comet coyote crane delta dune eagle ember falcon fern fjord fox gale geyser glade harbor heron ibis island jasper kestrel lagoon lark maple marten meadow mesa otter pebble pine prairie quartz raven reef ridge river sparrow summit thicket tide tulip willow wren';

/** Two words and four characters, for 4 billion slugs. A collision makes `create` choose another one. */
export function makeSlug(): string {
  return [pick(FIRST), pick(SECOND), randomBase62(4).toLowerCase()].join('-');
}

function pick(words: string): string {
  const list = words.split(' ');
  return list[randomInt(list.length)]!;
}
