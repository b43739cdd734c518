import { Type } from 'typebox';
import { isUint64, Named, Uint64, Words } from '../../http/schema.js';
import { field, type Requirement } from '../field.js';
import { refuse } from '../refuse.js';
import { capitalized } from '../show-words.js';

export const RLIMIT_NAMES = [
  ...(['cpu', 'fsize', 'data', 'stack', 'core', 'rss', 'nproc', 'nofile', 'memlock', 'as'] as const),
  ...(['locks', 'sigpending', 'msgqueue', 'nice', 'rtprio', 'rttime'] as const),
];
type RlimitName = (typeof RLIMIT_NAMES)[number];

const values = {
  soft: Uint64({ description: 'The limit in force. A process can raise it up to `hard`.' }),
  hard: Uint64({ description: 'The ceiling of `soft`. 18446744073709551615 is no limit.' }),
};
const RESOURCE = 'The resource of a POSIX limit.';
const LIMIT = 'A POSIX resource limit.';
const LIMITS = 'The POSIX resource limits of the guest.';

/** A `nice` limit of N permits priorities down to 20 - N, so a limit above 20 permits negative ones. */
const ORDINARY_NICE = 20;

export const rlimits = field({
  schema: Type.Array(
    Named(
      'CloudRlimit',
      {
        resource: Words(RLIMIT_NAMES, { title: 'CloudRlimitResource', description: RESOURCE }),
        ...values,
      },
      LIMIT,
    ),
    { maxItems: RLIMIT_NAMES.length, description: LIMITS },
  ),
  answer: Type.Array(
    Named(
      'Rlimit',
      {
        resource: Words(RLIMIT_NAMES.map(capitalized), {
          title: 'RlimitResource',
          description: RESOURCE,
        }),
        ...values,
      },
      LIMIT,
    ),
    { description: LIMITS },
  ),
  default: [],
  restricts: true,
  check(limits, _, { name, bounds }) {
    const seen = new Set<string>();
    for (const [index, { resource, soft, hard }] of limits.entries()) {
      const at = `rlimits[${index}]`;
      for (const [key, value] of Object.entries({ soft, hard })) {
        if (isUint64(value)) continue;
        const message = `${key} must be a whole number up to 18446744073709551615, written in digits only`;
        refuse(`${at}.${key}`, message);
      }
      if (resource === 'nofile' && bounds.openFiles !== undefined && hard > bounds.openFiles) {
        const message = `the ${name} runtime takes nofile limits up to ${bounds.openFiles}, which is fs.nr_open of its kernel`;
        refuse(`${at}.hard`, message);
      }
      if (soft > hard) refuse(`${at}.soft`, 'the soft limit must not be above the hard one');
      if (seen.has(resource)) refuse(`${at}.resource`, `there are two limits for ${resource}`);
      seen.add(resource);
    }
  },
  requires: (limits) =>
    limits.flatMap(({ resource, hard }, index): Requirement[] => {
      const at = `rlimits[${index}]`;
      const limit: Requirement = { capability: 'rlimits', field: at, what: 'set the limits of processes' };
      if (resource === 'as')
        return [limit, { capability: 'rlimit_as', field: at, what: 'limit the address space' }];
      const above = resource === 'rtprio' ? 0 : resource === 'nice' ? ORDINARY_NICE : Infinity;
      if (hard <= above) return [limit];
      const what = 'let a sandbox take the processors from everything else on the machine';
      return [limit, { capability: 'rlimit_priority', field: at, what }];
    }),
  show: (limits) =>
    limits.map(({ resource, soft, hard }) => ({ resource: capitalized<RlimitName>(resource), soft, hard })),
  run: (limits) => ({ rlimits: limits }),
});
