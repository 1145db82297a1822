# The agent (or, with the argument gateway, a gateway) for linux/amd64, linux/arm64 and linux/arm/v7.
# Nothing of another platform is executed to build it: packages for the target are fetched, files are copied.

# Node.js with npm; of the target's platform, only its executable is taken.
ARG NODE_IMAGE=docker.io/library/node:22-bookworm-slim
# What Node.js needs to run: the C and C++ libraries, no shell.
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12

FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY rolldown.config.ts tsconfig.json LICENSE ./
COPY packaging packaging
COPY src src
RUN node_modules/.bin/rolldown -c && rm -r dist/management && find dist -name '*.map' -delete && mkdir data

FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS packages
ARG TARGETARCH
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# zod is for the types of the management client, which is not in the image. npm 10 leaves folders of what it omits.
RUN npm ci --omit=dev --ignore-scripts --os=linux --libc=glibc \
    --cpu="$(node -p '({ amd64: "x64" })[process.argv[1]] ?? process.argv[1]' "$TARGETARCH")" \
  && rm -r node_modules/zod node_modules/@libsql/*musl* package-lock.json node_modules/.package-lock.json \
  && find node_modules -type d -empty -delete

FROM ${NODE_IMAGE} AS node

FROM ${BASE_IMAGE}
COPY --from=node /usr/local/bin/node /usr/local/bin/node
WORKDIR /app
COPY --from=packages /app ./
COPY LICENSE ./
COPY defaults defaults
COPY --from=build /src/dist dist
# A volume takes over the owner of the folder that it covers.
COPY --from=build --chown=65532:65532 /src/data /data
USER 65532:65532
VOLUME /data
# Sockets lie in memory: the root file system may be read-only.
ENV PATH=/usr/local/bin:/usr/bin:/bin DATA_DIR=/data TMPDIR=/dev/shm AGENT_GATEWAY=remote
HEALTHCHECK --interval=60s --timeout=10s --start-period=30s CMD ["node", "dist/cli.js", "health"]
# Memory for small devices, and processor time of bulk transfers through a gateway (src/lib/minor-gc.ts).
ENTRYPOINT ["node", "--max-semi-space-size=1", "--expose-gc", "dist/cli.js"]
CMD ["run"]
