import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { BASE, buildFrom, makeBases, NODE_BASE } from '../container-image.js';

/** Debian with the clients that people use: curl, git, Go, Java, Node with npm, OpenSSL, Python with pip. */
export const CLIENTS = 'sandkeep-test:clients';

const INSTALL = 'apt-get update -qq && apt-get install -y -qq --no-install-recommends';
// Packages of Java fail without the directory, which the base image lacks.
const PREPARE = `mkdir -p /usr/share/man/man1 && ${INSTALL}`;
const CLEAN = 'rm -rf /var/lib/apt/lists/*';

const FILE = `FROM ${BASE} AS build
RUN ${PREPARE} gcc golang-go libc6-dev musl-tools openjdk-17-jdk-headless && ${CLEAN}
COPY . /clients
RUN cd /clients && CGO_ENABLED=0 go build -o /out/go-get main.go && javac -d /out Get.java \\
  && musl-gcc -static -O2 -o /out/resolve-musl resolve.c && gcc -O2 -o /out/resolve-glibc resolve.c

FROM ${NODE_BASE}
RUN ${PREPARE} curl git openssl openjdk-17-jre-headless python3-h2 python3-httpx python3-pip python3-requests \\
  && ${CLEAN}
COPY --from=build /out /opt/clients
`;

/** The engine has the layers of an unchanged image in its cache. A first build takes a minute on a quiet machine. */
export function makeClientImage(): void {
  makeBases();
  buildFrom(CLIENTS, FILE, join(PACKAGE_ROOT, 'test/support/internet/clients'));
}
