# The image of all roles and of the operator. Any Node image with glibc serves as a base:
#   docker build -t kintsugi --build-arg NODE_IMAGE=node:22-slim .
ARG NODE_IMAGE=node:24-slim

FROM ${NODE_IMAGE} AS build
RUN command -v g++ make python3 >/dev/null || (apt-get update && \
    apt-get install -y --no-install-recommends g++ make python3 && rm -rf /var/lib/apt/lists/*)
WORKDIR /app
COPY package.json package-lock.json .npmrc binding.gyp tsconfig.json LICENSE ./
COPY native native
COPY src src
COPY bench bench
COPY examples examples
# Compiles the addon and the TypeScript. Then the tools go, and what DLRM and object stores need comes by name:
# npm takes what is also a tool of the tests for a tool, also when it is asked for. What other platforms need
# goes.
RUN ONNXRUNTIME_NODE_INSTALL=skip npm install && \
    npm pkg delete devDependencies peerDependencies peerDependenciesMeta && \
    npm install --no-save --ignore-scripts "@aws-sdk/client-s3@^3.729.0" "onnxruntime-node@^1.30.0" \
      "lmdb@^3.5.6" "uWebSockets.js@npm:@rjweb/uws@1.5.0" && \
    arch=$(node -p process.arch) abi=$(node -p process.versions.modules) && \
    find node_modules/onnxruntime-node/bin -mindepth 3 -maxdepth 3 ! -path "*/linux/$arch" -exec rm -r {} + && \
    find node_modules/uWebSockets.js -name '*.node' ! -name "uws_linux_${arch}_$abi.node" -delete && \
    mkdir -p kept/app kept/usr/local/bin && \
    cp -r --parents dist build/Release/kintsugi.node src/fleet/dashboard/page node_modules kept/app && \
    cp package.json LICENSE kept/app && ln -s /app/dist/src/cli/main.js kept/usr/local/bin/kintsugi && \
    find kept \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.tsbuildinfo' \) -delete

# Nothing is run in what is kept: its base needs no shell.
FROM ${NODE_IMAGE}
ENV NODE_ENV=production
COPY --from=build /app/kept /
WORKDIR /app
USER 1000:1000
ENTRYPOINT ["kintsugi"]
