import { secretsOf, withSecrets, type EnvEntry } from './env-entries';

interface SecretVariablesProps {
  env: unknown;
  change: (env: EnvEntry[] | undefined) => void;
}

/** The entries of `env` with `secret: true`. Their values are not shown while they are typed. */
export function SecretVariables({ env, change }: SecretVariablesProps) {
  const secrets = secretsOf(env);
  const set = (place: number, part: Partial<EnvEntry>) =>
    change(
      withSecrets(
        env,
        secrets.map((entry, at) => (at === place ? { ...entry, ...part } : entry)),
      ),
    );
  return (
    <fieldset class="secret-variables">
      <legend>Secret variables</legend>
      {secrets.map(({ key, value }, place) => (
        <p key={place} class="actions">
          <input
            aria-label={`Name of secret variable ${place + 1}`}
            placeholder="TOKEN"
            spellcheck={false}
            value={key}
            onInput={({ currentTarget }) => set(place, { key: currentTarget.value })}
          />
          <input
            type="password"
            aria-label={`Value of secret variable ${place + 1}`}
            autocomplete="off"
            value={value}
            onInput={({ currentTarget }) => set(place, { value: currentTarget.value })}
          />
          <button
            type="button"
            aria-label={`Remove secret variable ${place + 1}`}
            onClick={() =>
              change(
                withSecrets(
                  env,
                  secrets.filter((_, at) => at !== place),
                ),
              )
            }
          >
            Remove
          </button>
        </p>
      ))}
      <button
        type="button"
        onClick={() => change(withSecrets(env, [...secrets, { key: '', value: '', secret: true }]))}
      >
        Add a secret variable
      </button>
      <small>Entries of env with secret: true. Their values are sealed, and no answer has them.</small>
    </fieldset>
  );
}
