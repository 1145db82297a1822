# The agent (or, with the argument gateway, a gateway) for linux/amd64, linux/arm64 and linux/arm/v7.
# The build runs no code of the target platform: it fetches the target's packages and copies files.

# Node.js with npm. Of the target platform's image, only the executable is used.
ARG NODE_IMAGE=docker.io/library/node:24-bookworm-slim@sha256:6f7b03f7c2c8e2e784dcf9295400527b9b1270fd37b7e9a7285cf83b6951452d
# For linux/arm/v7, the newest image that exists: since Node.js 24 there is none for 32 bits.
ARG NODE_IMAGE_ARM=docker.io/library/node:22-bookworm-slim@sha256:43ac6c60b8f89723f746e8a92ce91abd5017e627ce1ddfe4238355d3a30b772c
# The C and C++ libraries that Node.js needs; no shell.
ARG BASE_IMAGE=gcr.io/distroless/cc-debian12:nonroot@sha256:9dac0a79194e45a7da0158a9c6da57b217585af0786db3845d1f0ec1a0dd182f
ARG ARCH=${TARGETARCH}

FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS build
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY rolldown.config.ts vite.config.ts tsconfig.json LICENSE ./
COPY packaging packaging
COPY src src
# The commit, for --version: the build has no repository.
ARG SOURCE_COMMIT=
RUN node_modules/.bin/rolldown -c && node_modules/.bin/vite build && rm -r dist/management && find dist -name '*.map' -delete && mkdir data

FROM --platform=$BUILDPLATFORM ${NODE_IMAGE} AS packages
ARG TARGETARCH
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# npm leaves empty folders of omitted packages.
RUN npm ci --omit=dev --ignore-scripts --os=linux --libc=glibc \
    --cpu="$(node -p '({ amd64: "x64" })[process.argv[1]] ?? process.argv[1]' "$TARGETARCH")" \
  && rm -r node_modules/@libsql/*musl* package-lock.json node_modules/.package-lock.json \
  && find node_modules -type d -empty -delete

FROM ${NODE_IMAGE} AS node-amd64
FROM ${NODE_IMAGE} AS node-arm64
FROM ${NODE_IMAGE_ARM} AS node-arm
FROM node-${ARCH} AS node

FROM ${BASE_IMAGE}
ARG VERSION=unreleased
ARG SOURCE_COMMIT=
ARG SOURCE_URL=
LABEL org.opencontainers.image.title=device-agent \
  org.opencontainers.image.description="Tunnels from a device that survive bad power and bad networks; with the argument gateway, a gateway of your own" \
  org.opencontainers.image.licenses=Apache-2.0 \
  org.opencontainers.image.version=${VERSION} \
  org.opencontainers.image.revision=${SOURCE_COMMIT} \
  org.opencontainers.image.source=${SOURCE_URL}
COPY --from=node /usr/local/bin/node /usr/local/bin/node
WORKDIR /app
COPY --from=packages /app ./
COPY LICENSE ./
COPY defaults defaults
COPY --from=build /src/dist dist
# A new volume inherits the owner of the folder below it.
COPY --from=build --chown=65532:65532 /src/data /data
USER 65532:65532
VOLUME /data
# Sockets are in memory, so that the root file system can be read-only. MALLOC_ARENA_MAX: src/service/service.ts says why.
ENV PATH=/usr/local/bin:/usr/bin:/bin DATA_DIR=/data TMPDIR=/dev/shm AGENT_GATEWAY=remote MALLOC_ARENA_MAX=2
# How people type the commands that messages name, outside of the container.
ENV DEVICE_AGENT_COMMAND="docker exec <container> node dist/cli.js"
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s CMD ["node", "dist/cli.js", "health"]
# Memory for small devices, and processor time of bulk transfers through a gateway (src/lib/process/minor-gc.ts).
ENTRYPOINT ["node", "--max-semi-space-size=1", "--v8-pool-size=1", "--expose-gc", "dist/cli.js"]
CMD ["run"]
