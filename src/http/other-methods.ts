import type { FastifyRequest } from 'fastify';
import { ApiError } from './errors.js';
import type { App } from './route.js';

/** Fastify routes these. Node parses others too, such as QUERY and PROPFIND, for which Fastify finds no route. */
const ROUTED = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE'] as const;

/** Refuses the methods that a path does not take, with 405 and `Allow`. */
export class OtherMethods {
  private readonly taken = new Map<string, Set<string>>();
  /** The header of each path. */
  private readonly allow = new Map<string, string>();

  /** Notes the routes that are registered later. */
  watch(app: App): void {
    app.addHook('onRoute', ({ url, method }) => {
      const methods = this.taken.get(url) ?? new Set();
      for (const name of [method].flat()) methods.add(name);
      this.taken.set(url, methods);
    });
  }

  /** Call it when all routes are registered. */
  refuse(app: App): void {
    // A copy, since the routes of this loop are noted too.
    for (const [url, taken] of Array.from(this.taken)) {
      // The files of the API reference.
      if (url.startsWith('/docs')) continue;
      const methods = new Set(taken);
      this.allow.set(url, [...methods].toSorted().join(', '));
      app.route({
        method: ROUTED.filter((method) => !methods.has(method)),
        url,
        schema: { hide: true },
        // Refused before the body is read.
        onRequest: async () => Promise.reject(this.refusal(url)),
        handler: () => undefined,
      });
    }
  }

  /** The refusal of a request for which Fastify has found no route. */
  refusalOf({ method, url }: Pick<FastifyRequest, 'method' | 'url'>): ApiError {
    const isRouted = (ROUTED as readonly string[]).includes(method);
    const path = isRouted ? undefined : this.pathOf(url.split('?', 1)[0]!);
    return path === undefined ? new ApiError('route_not_found') : this.refusal(path);
  }

  private refusal(path: string): ApiError {
    return new ApiError('method_not_allowed', undefined, null, {
      headers: { allow: this.allow.get(path)! },
    });
  }

  /** A literal part takes precedence over a parameter, as in the router. */
  private pathOf(url: string): string | undefined {
    const parts = url.split('/');
    const places = (path: string) => path.split(/:|\*/).length;
    return [...this.allow.keys()]
      .filter((path) => {
        const pattern = path.split('/');
        const isPrefix = pattern.at(-1) === '*';
        if (isPrefix ? parts.length < pattern.length : parts.length !== pattern.length) return false;
        return pattern.every((part, index) => part === '*' || part.startsWith(':') || part === parts[index]);
      })
      .toSorted((a, b) => places(a) - places(b))[0];
  }
}
