import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { docker } from '../container-image.js';
import { CLIENTS } from './client-image.js';

/** The files of a package index, a registry and a repository, below their own folders of `root`. */
export interface Packages {
  root: string;
  pip: string;
  npm: string;
  git: string;
  remove(): void;
}

/** The hosts name themselves in the links of a registry. */
export const NPM_HOST = 'npm.packages.test';

const SCRIPT = `set -e
mkdir -p /out/pip/simple/hello /out/npm/hello /out/git /tmp/wheel/hello-1.0.dist-info /tmp/npm
cd /tmp/wheel
echo 'print("hello from a wheel")' >hello.py
printf 'Metadata-Version: 2.1\\nName: hello\\nVersion: 1.0\\n' >hello-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n' >hello-1.0.dist-info/WHEEL
printf 'hello.py,,\\nhello-1.0.dist-info/METADATA,,\\nhello-1.0.dist-info/WHEEL,,\\nhello-1.0.dist-info/RECORD,,\\n' >hello-1.0.dist-info/RECORD
python3 -m zipfile -c /out/pip/simple/hello/hello-1.0-py3-none-any.whl hello.py hello-1.0.dist-info
echo '<a href="hello-1.0-py3-none-any.whl">hello-1.0-py3-none-any.whl</a>' >/out/pip/simple/hello/index.html
cd /tmp/npm
echo '{"name":"hello","version":"1.0.0","main":"index.js"}' >package.json
echo 'console.log("hello from npm")' >index.js
npm pack --silent --pack-destination /out/npm >/dev/null
echo '{"name":"hello","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"hello","version":"1.0.0","dist":{"tarball":"https://${NPM_HOST}/hello-1.0.0.tgz"}}}}' >/out/npm/hello/index.html
cd /out/git
git init --quiet --bare hello.git
git clone --quiet hello.git /tmp/clone 2>/dev/null
cd /tmp/clone
echo 'hello from git' >README
git add README
git -c user.name=a -c user.email=a@b.test commit --quiet -m one
git push --quiet origin HEAD
git -C /out/git/hello.git update-server-info
chmod -R a+rX /out`;

export function makePackages(): Packages {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-packages-'));
  docker('run', '--rm', '--network', 'none', '--volume', `${root}:/out`, CLIENTS, 'sh', '-c', SCRIPT);
  const [pip, npm, git] = ['pip', 'npm', 'git'].map((name) => join(root, name)) as [string, string, string];
  return { root, pip, npm, git, remove: () => rmSync(root, { recursive: true }) };
}
