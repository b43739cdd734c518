import type Docker from 'dockerode';
import { StartRefusedError } from '../../engine/runtime.js';
import { AgentPool } from '../../guest/agent-pool.js';
import { GuestAgent } from '../../guest/agent.js';
import { AGENT_PROGRAM, workdirOf } from '../../guest/programs.js';
import { ApiError } from '../../http/errors.js';
import type { ContainerdPlace } from './containerd.js';
import { attachedStream } from './engine-stream.js';
import { checkAccountFiles } from './files/account-files.js';

/** The agents in the containers of an engine, started by an exec of the engine. */
export class DockerGuests extends AgentPool {
  constructor(docker: Docker, containerd?: ContainerdPlace) {
    super((containerId) => startAgent(docker.getContainer(containerId), containerd));
  }
}

async function startAgent(
  container: Docker.Container,
  containerd: ContainerdPlace | undefined,
): Promise<GuestAgent> {
  const inspected = await container.inspect();
  const { Config } = inspected;
  // For these the engine itself opens the files at each exec. At a pipe it would wait with a thread, beyond the end of
  // the sandbox.
  if (Config.User) await checkAccountFiles(container, inspected, containerd).catch(explainDisk);
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
  let begin = '';
  const listen = (chunk: Buffer) => {
    if (begin.length < LONGEST_ERROR) begin += chunk.toString('latin1');
  };
  connection.on('data', listen);
  const agent = new GuestAgent(attachedStream(connection), {
    env: Config.Env ?? [],
    cwd: workdirOf(Config.Cmd ?? []) ?? (Config.WorkingDir || '/'),
  });
  try {
    await agent.opened();
  } catch (cause) {
    throw NO_PROGRAM.test(begin) ? goneError(cause) : cause;
  } finally {
    connection.off('data', listen);
  }
  return agent;
}

/** The engine writes the error of an exec in the place of its output. */
const NO_PROGRAM = /^.{0,16}OCI runtime exec failed: .*\bno such file or directory/s;
const LONGEST_ERROR = 4_096;

/** No retry mends the disk of a sandbox. */
function explainDisk(cause: unknown): never {
  if (!(cause instanceof StartRefusedError)) throw cause;
  throw new ApiError('command_not_started', cause.message, { kind: 'user_setup_failed' }, { cause });
}

function goneError(cause: unknown): ApiError {
  const message = `the sandbox has no ${AGENT_PROGRAM} any more, which runs its commands: start the sandbox again, which brings it back`;
  return new ApiError('command_not_started', message, { kind: 'not_found' }, { cause });
}
