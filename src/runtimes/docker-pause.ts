import type Docker from 'dockerode';
import { finished } from 'node:stream/promises';
import { pack } from 'tar-stream';
import { statusOf } from './docker-errors.js';

/** A program that waits for ever, in an image of nothing else. Made here, so that nothing has to be downloaded for it. */

export const PAUSE_IMAGE = 'sandkeep/pause:1';
export const PAUSE_PROGRAM = '/pause';

/** Machine code that waits for a signal, again and again. */
const X86_64 = {
  machine: 62,
  bytes: [
    ...[0xb8, 0x22, 0x00, 0x00, 0x00], // mov eax, 34   the number of pause(2)
    ...[0x0f, 0x05], //                   syscall
    ...[0xeb, 0xf7], //                   jmp to the start
  ],
};
const AARCH64 = {
  machine: 183,
  bytes: [
    ...[0x00, 0x00, 0x80, 0xd2], // mov x0, #0    ppoll(NULL, 0, NULL, NULL): there is no pause(2) here
    ...[0x01, 0x00, 0x80, 0xd2], // mov x1, #0
    ...[0x02, 0x00, 0x80, 0xd2], // mov x2, #0
    ...[0x03, 0x00, 0x80, 0xd2], // mov x3, #0
    ...[0x28, 0x09, 0x80, 0xd2], // mov x8, #73   the number of ppoll(2)
    ...[0x01, 0x00, 0x00, 0xd4], // svc #0
    ...[0xfa, 0xff, 0xff, 0x17], // b to the start
  ],
};
/** By the names that Docker and Podman have for the processors. */
const CODE: Record<string, typeof X86_64> = {
  x86_64: X86_64,
  amd64: X86_64,
  aarch64: AARCH64,
  arm64: AARCH64,
};

const LOAD_ADDRESS = 0x400000n;
const FILE_HEADER = 64;
const PROGRAM_HEADER = 56;

/** Can the engine's processor run it? */
export function hasPause(architecture: string): boolean {
  return architecture in CODE;
}

/** Puts the image on the machine, if it is not there. */
export async function ensurePauseImage(docker: Docker, architecture: string): Promise<void> {
  try {
    await docker.getImage(PAUSE_IMAGE).inspect();
    return;
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
  }
  const archive = pack();
  archive.entry({ name: PAUSE_PROGRAM.slice(1), mode: 0o755 }, pauseProgram(architecture));
  archive.finalize();
  const [repo, tag] = PAUSE_IMAGE.split(':');
  const changes = ['LABEL dev.sandkeep.image=pause'];
  const answer = await docker.importImage(archive, {
    repo,
    tag,
    changes,
  });
  answer.resume();
  await finished(answer);
}

/** The smallest ELF program there can be in good order: header, one segment, the code. Section "Program header" of elf(5). */
function pauseProgram(architecture: string): Buffer {
  const { machine, bytes } = CODE[architecture]!;
  const start = FILE_HEADER + PROGRAM_HEADER;
  const program = Buffer.alloc(start + bytes.length);
  const size = BigInt(program.length);
  program.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1], 0); // magic; 64 bits; little-endian; version 1
  program.writeUInt16LE(2, 16); // an executable
  program.writeUInt16LE(machine, 18);
  program.writeUInt32LE(1, 20); // version
  program.writeBigUInt64LE(LOAD_ADDRESS + BigInt(start), 24); // where it begins
  program.writeBigUInt64LE(BigInt(FILE_HEADER), 32); // where the program header is
  program.writeUInt16LE(FILE_HEADER, 52);
  program.writeUInt16LE(PROGRAM_HEADER, 54);
  program.writeUInt16LE(1, 56); // one program header:
  program.writeUInt32LE(1, 64); // to load
  program.writeUInt32LE(5, 68); // readable, executable
  program.writeBigUInt64LE(LOAD_ADDRESS, 80);
  program.writeBigUInt64LE(LOAD_ADDRESS, 88);
  program.writeBigUInt64LE(size, 96); // in the file
  program.writeBigUInt64LE(size, 104); // in memory
  program.writeBigUInt64LE(0x10000n, 112); // aligned for any size of page
  program.set(bytes, start);
  return program;
}
