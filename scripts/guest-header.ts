import * as protocol from '../src/guest/protocol.js';

/** The numbers of the protocol, by the prefix of their names in C. */
const NUMBERS: Record<string, Readonly<Record<string, number>>> = {
  REQUEST: protocol.REQUEST,
  ANSWER: protocol.ANSWER,
  FILE: protocol.FILE_OPERATION,
  COMMAND: protocol.COMMAND,
  FEATURE: protocol.FEATURE,
  STEP: protocol.STEP,
  OOM: protocol.OOM,
  HANDOVER: protocol.HANDOVER,
  REPLY: protocol.REPLY,
  OPEN: protocol.OPEN,
  SET: protocol.SET,
  BOOT: protocol.BOOT,
  BOOT_MOUNT: protocol.BOOT_MOUNT,
  MOUNT: protocol.MOUNT_FLAG,
  BOOT_PATCH: protocol.BOOT_PATCH,
  PATCH: protocol.PATCH_FLAG,
  LIMIT: protocol.LIMIT,
};

/** `guest/protocol.h`: the description of the messages in `protocol.ts`, in C. */
export function guestHeader(): string {
  const numbers = Object.entries(NUMBERS).map(([prefix, group]) =>
    Object.entries(group)
      .map(([name, value]) => `#define ${prefix}_${snake(name).toUpperCase()} ${value}\n`)
      .join(''),
  );
  const texts = Object.entries(protocol.HANDSHAKE).map(
    ([name, text]) => `#define HANDSHAKE_${snake(name).toUpperCase()} "${text}"\n`,
  );
  texts.push(`#define SHARED_FILE "${protocol.SHARED_FILE}"\n`);
  const layouts = Object.entries(protocol.LAYOUT).map(([name, layout]) => layoutInC(name, layout));
  const errors = Object.entries(protocol.ERRORS).map(
    ([name, [number]]) => `_Static_assert(${name} == ${number}, "protocol.ts has another ${name}");\n`,
  );
  return `/*
 * The messages between the service and the guest programs: numbers, limits, and a reader and a writer of each layout.
 * Made from src/guest/protocol.ts, which explains them, by "npm run generate".
 */
#ifndef SANDKEEP_PROTOCOL_H
#define SANDKEEP_PROTOCOL_H

#include "common/bytes.h"

${numbers.join('\n')}
${texts.join('')}
${layouts.join('\n')}
${errors.join('')}
#endif
`;
}

function layoutInC(name: string, layout: protocol.Layout): string {
  const fields = Object.entries(layout).map(([field, width]) => ({
    field: snake(field),
    width,
    bytes: protocol.WIDTHS[width],
  }));
  const size = fields.reduce((sum, { bytes }) => sum + bytes, 0);
  const [type, verb] = [`struct ${snake(name)}_layout`, snake(name)];
  const read = fields.map(({ field, width, bytes }) => `  to.${field} = (${width})take(from, ${bytes});\n`);
  let at = 0;
  const write = fields.map(({ field, bytes }) => {
    const line = `  put(to + ${at}, from.${field}, ${bytes});\n`;
    at += bytes;
    return line;
  });
  return `#define ${verb.toUpperCase()}_BYTES ${size}
${type} {
${fields.map(({ field, width }) => `  ${width} ${field};\n`).join('')}};
static inline ${type} take_${verb}(Reader *from) {
  ${type} to;
${read.join('')}  return to;
}
static inline void put_${verb}(u8 *to, ${type} from) {
${write.join('')}}
`;
}

function snake(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
