import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { testClients } from '../support/clients.js';
import { onDocker } from '../support/docker-service.js';
import { describeDocker, importImage, makeBusybox, makeImage } from '../support/docker.js';
import { startTestService } from '../support/service.js';

describeDocker('on Docker', () => {
  testClients('the official clients with the Docker runtime', 'docker', () => {
    makeImages();
    return startTestService({
      ...onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }),
      settings: { stopGraceMs: 500 },
    });
  });
});

/** Makes the images of the table. */
function makeImages(): void {
  makeImage();
  makeBusybox('sandkeep-test:echo', { change: 'CMD ["/bin/echo","hello"]' });
  makeBusybox('sandkeep-test:workdir', { change: 'WORKDIR /etc' });
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-image-'));
  writeFileSync(join(root, 'notes.txt'), 'hello\n');
  importImage(root, 'sandkeep-test:scratch');
  rmSync(root, { recursive: true });
}
