/** The part of a template that sandboxes of it begin with, where their requests say nothing else. */
export interface TemplateConfig {
  env: { key: string; value: string }[];
  workdir: string | null;
  user: string | null;
  /** With its entrypoint it is launched once at each start. Null: none is. */
  cmd: string[] | null;
  entrypoint: string[] | null;
  labels: Record<string, string>;
  /** Ports that its programs listen on, for people. */
  exposed: string[];
}

export const EMPTY_CONFIG: TemplateConfig = {
  env: [],
  workdir: null,
  user: null,
  cmd: null,
  entrypoint: null,
  labels: {},
  exposed: [],
};

interface Runtime {
  cmd?: string[] | null;
  entrypoint?: string[] | null;
  user?: string | null;
  workdir?: string | null;
}

interface Request<R extends Runtime> {
  env?: { key: string; value: string; secret?: boolean }[] | undefined;
  runtime?: R | undefined;
}

/**
 * The fields of a request that a template has values for. Those of the request win: the last variable with a key
 * applies.
 */
export function templateFields<R extends Runtime>(
  { env = [], runtime }: Request<R>,
  config: TemplateConfig,
): { env: NonNullable<Request<R>['env']>; runtime: R | Runtime } {
  const entrypoint = runtime?.entrypoint ?? config.entrypoint;
  // A command of the request replaces that of the template, and keeps its entrypoint, as Docker does.
  const cmd = runtime?.cmd ?? (runtime?.entrypoint == null ? config.cmd : null);
  const isEntrypointAlone = (entrypoint ?? []).length > 0 && cmd === null;
  return {
    env: [...config.env, ...env],
    runtime: {
      ...runtime,
      user: runtime?.user ?? config.user,
      workdir: runtime?.workdir ?? config.workdir,
      cmd: isEntrypointAlone ? entrypoint : cmd,
      entrypoint: isEntrypointAlone ? [] : entrypoint,
    },
  };
}
