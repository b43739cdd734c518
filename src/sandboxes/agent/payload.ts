import { Buffer } from 'node:buffer';
import type { Payload } from './envelope.js';

/** Reads the fields of a payload, which a client made. Each function throws BadPayload. */

export class BadPayload extends Error {}

const MAX_TEXT = 128 * 1024;
const UINT64 = (1n << 64n) - 1n;

export function readText(payload: Payload, name: string): string {
  const value = payload.get(name);
  if (typeof value !== 'string') throw new BadPayload(`"${name}" must be a text`);
  if (value.length > MAX_TEXT) throw new BadPayload(`"${name}" is too long`);
  if (value.includes('\0')) throw new BadPayload(`"${name}" has a NUL character`);
  return value;
}

export function readOptionalText(payload: Payload, name: string): string | null {
  return payload.get(name) == null ? null : readText(payload, name);
}

export function readTexts(payload: Payload, name: string): string[] {
  const value = payload.get(name) ?? [];
  if (!Array.isArray(value)) throw new BadPayload(`"${name}" must be a list of texts`);
  return value.map((item) => readText(new Map([[name, item as unknown]]), name));
}

export function readFlag(payload: Payload, name: string): boolean {
  const value = payload.get(name) ?? false;
  if (typeof value !== 'boolean') throw new BadPayload(`"${name}" must be true or false`);
  return value;
}

/** A whole number between two limits. */
export function readInteger(payload: Payload, name: string, min: number, max: number): number {
  const value = payload.get(name);
  if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
    throw new BadPayload(`"${name}" must be an integer from ${min} to ${max}`);
  }
  return value;
}

/** An integer of 64 bits. The decoder gives large ones as bigints. */
export function readUint64(payload: Payload, name: string): bigint {
  const value = payload.get(name);
  const isWhole = typeof value === 'bigint' || (typeof value === 'number' && Number.isInteger(value));
  if (!isWhole || value < 0 || value > UINT64) {
    throw new BadPayload(`"${name}" must be an integer from 0 to ${UINT64}`);
  }
  return BigInt(value);
}

export function readOptionalUint64(payload: Payload, name: string): bigint | undefined {
  return payload.get(name) == null ? undefined : readUint64(payload, name);
}

export function readOptionalInteger(payload: Payload, name: string, max: number): number | undefined {
  return payload.get(name) == null ? undefined : readInteger(payload, name, 0, max);
}

export function readMap(payload: Payload, name: string): Payload {
  const value = payload.get(name);
  if (!(value instanceof Map)) throw new BadPayload(`"${name}" must be a map`);
  return value as Payload;
}

export function readMaps(payload: Payload, name: string): Payload[] {
  const value = payload.get(name) ?? [];
  if (!Array.isArray(value)) throw new BadPayload(`"${name}" must be a list of maps`);
  return value.map((item) => readMap(new Map([[name, item as unknown]]), name));
}

/** Bytes, also as a list of numbers. */
export function readBytes(payload: Payload, name: string): Buffer {
  const value = payload.get(name);
  if (value instanceof Uint8Array) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (Array.isArray(value) && value.every((byte) => Number.isInteger(byte) && byte >= 0 && byte <= 255)) {
    return Buffer.from(value as number[]);
  }
  throw new BadPayload(`"${name}" must be bytes`);
}
