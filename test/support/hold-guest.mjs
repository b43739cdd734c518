// Holds the agent of a container with two commands, until it is killed. Arguments: engine socket, container id.
import Docker from 'dockerode';
import { DockerGuests } from '../../dist/src/engines/docker/guests.js';

const [socketPath, id] = process.argv.slice(2);
const { guest } = await new DockerGuests(new Docker({ socketPath })).open(id);
const ignore = () => undefined;
const listener = { output: ignore, exited: ignore, failed: ignore, inputFailed: ignore };
const spec = { env: [], cwd: null, user: null, terminal: null, rlimits: [], credit: 1_000_000 };
let started = 0;
for (const args of [
  ['sleep', '54321'],
  ['yes', '54321'],
]) {
  guest.exec(
    { ...spec, args },
    {
      ...listener,
      started: () => {
        started += 1;
        if (started === 2) console.log('holding');
      },
    },
  );
}
