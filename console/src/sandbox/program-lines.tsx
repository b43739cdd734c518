import { API_URL } from '../lib/base';
import type { SandboxResponse } from '../lib/api-types';
import { CodeLines } from '../parts/copy';
import './sandbox.css';

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** The lines that run a command in the sandbox, by tool. */
export function ProgramLines({ sandbox: { name } }: { sandbox: SandboxResponse }) {
  const address = `${API_URL}/v1/sandboxes/by-name/${encodeURIComponent(name)}`;
  const lines: readonly (readonly [tool: string, text: string])[] = [
    [
      'CLI',
      [
        `export MSB_BACKEND=cloud MSB_API_URL=${API_URL} MSB_API_KEY="$KEY"`,
        `msb exec ${quoted(name)} -- echo hello`,
        `msb ssh ${quoted(name)}`,
        `msb logs -f ${quoted(name)}`,
      ].join('\n'),
    ],
    [
      'SDK',
      [
        `import { Sandbox, setDefaultBackend } from 'microsandbox';`,
        ``,
        `setDefaultBackend({ kind: 'cloud', url: '${API_URL}', apiKey: process.env.KEY });`,
        `const sandbox = await (await Sandbox.get(${JSON.stringify(name)})).connect();`,
        `console.log((await sandbox.exec('echo', ['hello'])).stdout());`,
      ].join('\n'),
    ],
    [
      'curl',
      [
        `curl ${quoted(`${address}/exec`)}`,
        `-H "authorization: Bearer $KEY" -H 'content-type: application/json'`,
        `-d '{"cmd":"echo","args":["hello"]}'`,
      ].join(' \\\n  '),
    ],
  ];
  return (
    <details class="panel program-lines">
      <summary>Use it from a program</summary>
      <p>
        <small>With a key of the scope sandboxes:exec in the variable KEY.</small>
      </p>
      {lines.map(([tool, text]) => (
        <section key={tool}>
          <h3>{tool}</h3>
          <CodeLines text={text} of={`${tool} lines`} />
        </section>
      ))}
    </details>
  );
}
