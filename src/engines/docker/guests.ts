import type Docker from 'dockerode';
import { AgentPool } from '../../guest/agent-pool.js';
import { GuestAgent } from '../../guest/agent.js';
import { AGENT_PROGRAM, workdirOf } from '../../guest/programs.js';
import { attachedStream } from './engine-stream.js';
import { checkAccountFiles } from './files/account-files.js';

/** The agents in the containers of an engine, started by an exec of the engine. */
export class DockerGuests extends AgentPool {
  constructor(docker: Docker) {
    super((containerId) => startAgent(docker.getContainer(containerId)));
  }
}

const targetOf = ({ Destination }: { Destination: string }): string => Destination;

async function startAgent(container: Docker.Container): Promise<GuestAgent> {
  const { Config, Mounts } = await container.inspect();
  // For these the engine itself opens the files at each exec. At a pipe it would wait with a thread, beyond the end of the sandbox.
  if (Config.User) await checkAccountFiles(container, Mounts.map(targetOf));
  // As the user of the sandbox: the engine gives no capabilities to another one.
  const exec = await container.exec({
    Cmd: [AGENT_PROGRAM],
    WorkingDir: '/',
    AttachStdin: true,
    AttachStdout: true,
    // The agent writes none.
    AttachStderr: false,
    Tty: false,
  });
  const connection = await exec.start({ hijack: true, stdin: true });
  const agent = new GuestAgent(attachedStream(connection), {
    env: Config.Env ?? [],
    cwd: workdirOf(Config.Cmd ?? []) ?? (Config.WorkingDir || '/'),
  });
  await agent.opened();
  return agent;
}
