import type { Command } from 'commander';
import { ExplainedError } from '../lib/explained-error.js';
import { refusalOf, send } from './api-client.js';
import { print } from './command.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';
import { readLogin, removeLogin } from './stored-login.js';

export function logoutCommand(env: NodeJS.ProcessEnv): Command {
  return new OperatorCommand('logout')
    .description('revoke the personal token of "sandkeep login", and forget it')
    .addOption(common(json()))
    .action(async (options: { json?: true }) => {
      const login = readLogin(env);
      if (!login) throw new ExplainedError('there is no login here: "sandkeep login" makes one');
      const { url, token, token_id } = login;
      const path = `/v1/tokens/${encodeURIComponent(token_id)}`;
      const answer = await send({ url, key: token }, path, { method: 'DELETE' });
      // The token has ended before.
      if (answer.status >= 300 && answer.status !== 401 && answer.status !== 404) throw refusalOf(answer);
      removeLogin(env);
      print(options, { url, token_id }, `signed out of ${url}`);
    });
}
