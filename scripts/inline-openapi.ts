/** Replaces the references to shared parameters and answers. Those to schemas stay. */
export function inlineOpenapi<T extends { paths: object; components: object }>(api: T): T {
  const components = api.components as Record<string, Record<string, unknown> | undefined>;
  const resolve = (value: object): object => {
    const [, section, name] = /^#\/components\/(parameters|responses)\/(.+)$/.exec(
      (value as { $ref?: string }).$ref ?? '',
    ) ?? ['', '', ''];
    return section === '' ? value : (components[section]![name] as object);
  };
  const paths = Object.fromEntries(
    Object.entries(api.paths as Record<string, Record<string, Record<string, unknown>>>).map(
      ([path, methods]) => [
        path,
        Object.fromEntries(
          Object.entries(methods).map(([method, operation]) => {
            const { parameters, responses } = operation as {
              parameters?: object[];
              responses: Record<string, object>;
            };
            return [
              method,
              {
                ...operation,
                ...(parameters === undefined ? {} : { parameters: parameters.map(resolve) }),
                responses: Object.fromEntries(
                  Object.entries(responses).map(([status, response]) => [status, resolve(response)]),
                ),
              },
            ];
          }),
        ),
      ],
    ),
  );
  return { ...api, paths };
}
