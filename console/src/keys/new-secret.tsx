import type { ApiKeyWithSecret } from '../lib/api-types';
import { API_URL } from '../lib/base';
import { CodeLines } from '../parts/copy';
import { SecretDialog } from '../parts/secret';

export interface Issued {
  key: ApiKeyWithSecret;
  isNew: boolean;
}

export function NewSecret({ issued: { key, isNew }, close }: { issued: Issued; close: () => void }) {
  const { name, key: secret } = key;
  const title = isNew ? `The key ${name}` : `The new secret of ${name}`;
  return (
    <SecretDialog title={title} of="key" secret={secret} close={close}>
      {secret !== null &&
        linesOf(secret).map(([of, text]) => (
          <section key={of}>
            <h3>{of}</h3>
            <CodeLines text={text} of={of} />
          </section>
        ))}
    </SecretDialog>
  );
}

function linesOf(secret: string): (readonly [string, string])[] {
  const origin = API_URL;
  return [
    ['curl', `curl ${origin}/v1/me/org -H 'authorization: Bearer ${secret}'`],
    ['CLI', `export MSB_BACKEND=cloud MSB_API_URL=${origin} MSB_API_KEY=${secret}\nmsb ls`],
    [
      'SDK',
      `import { setDefaultBackend } from 'microsandbox';\n\nsetDefaultBackend({ kind: 'cloud', url: '${origin}', apiKey: '${secret}' });`,
    ],
  ];
}
