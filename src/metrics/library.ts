import type * as Client from 'prom-client';

/** The part of the library that metrics are made of. It is loaded only where metrics are served. */
export type Library = Pick<
  typeof Client,
  'Counter' | 'Gauge' | 'Histogram' | 'Registry' | 'collectDefaultMetrics'
>;

export async function loadLibrary(): Promise<Library> {
  const { default: library } = await import('prom-client');
  return library;
}
