import type Docker from 'dockerode';
import { StartRefusedError } from '../../engine/runtime.js';
import { AgentPool } from '../../guest/agent-pool.js';
import { GuestAgent } from '../../guest/agent.js';
import { AGENT_PROGRAM, workdirOf } from '../../guest/programs.js';
import { ApiError } from '../../http/errors.js';
import { SANDBOX_LABEL } from './container.js';
import type { ContainerdPlace } from './containerd.js';
import { attachedStream } from './engine-stream.js';
import { checkAccountFiles } from './files/account-files.js';
import type { DirectPorts } from './ports/direct-ports.js';

/**
 * The agents in the containers of an engine. Process 1 of a sandbox starts one in a millisecond. Where the service does
 * not reach process 1, an exec of the engine starts it.
 */
export class DockerGuests extends AgentPool {
  constructor(docker: Docker, ports: DirectPorts | undefined, containerd?: ContainerdPlace) {
    super(async (containerId) => {
      const container = docker.getContainer(containerId);
      const inspected = await container.inspect();
      return (ports && (await askProcess(ports, inspected))) ?? startAgent(container, inspected, containerd);
    });
  }
}

async function askProcess(
  ports: DirectPorts,
  { Id, State, Config }: Docker.ContainerInspectInfo,
): Promise<GuestAgent | undefined> {
  const sandboxId = Config.Labels[SANDBOX_LABEL];
  if (sandboxId === undefined || !State.Running) return undefined;
  const connection = await ports.connectProcess(sandboxId, { containerId: Id, pid: State.Pid }, 'agent');
  if (!connection) return undefined;
  const agent = new GuestAgent(connection, agentOptions(Config));
  const late = setTimeout(() => agent.close(), LONGEST_WAIT_MS);
  try {
    await agent.opened();
    return agent;
  } catch {
    // The sandbox has no process left, for example. The engine has words for it.
    return undefined;
  } finally {
    clearTimeout(late);
  }
}

async function startAgent(
  container: Docker.Container,
  inspected: Docker.ContainerInspectInfo,
  containerd: ContainerdPlace | undefined,
): Promise<GuestAgent> {
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
  const agent = new GuestAgent(attachedStream(connection), agentOptions(Config));
  try {
    await agent.opened();
  } catch (cause) {
    throw NO_PROGRAM.test(begin) ? goneError(cause) : cause;
  } finally {
    connection.off('data', listen);
  }
  return agent;
}

function agentOptions({ Env, Cmd, WorkingDir }: Docker.ContainerInspectInfo['Config']) {
  return { env: Env ?? [], cwd: workdirOf(Cmd ?? []) ?? (WorkingDir || '/') };
}

/** A hostile sandbox may take the connection, and never answer. */
const LONGEST_WAIT_MS = 5_000;
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
