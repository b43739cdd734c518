import { networkInterfaces } from 'node:os';

export function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => withoutZone(address));
}

function withoutZone(address: string): string {
  return address.split('%')[0]!;
}
