/** Reads a part of a file. It is shorter where the file ends. */
export type ReadPart = (position: number, length: number) => Promise<Buffer>;
