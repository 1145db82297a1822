import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import type { Plugin } from 'rolldown';

const COMPRESSIBLE = /\.(?:html|js|css|svg)$/;

/** Writes copies of each file of a web build beside it, compressed as well as the formats allow. */
export function compressedCopies(): Plugin {
  return {
    name: 'compressed-copies',
    generateBundle: {
      // Vite writes its pages in this step, too.
      order: 'post',
      handler(_options, bundle) {
        for (const [fileName, output] of Object.entries(bundle)) {
          if (!COMPRESSIBLE.test(fileName)) continue;
          const content = Buffer.from(output.type === 'chunk' ? output.code : output.source);
          const params = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
          this.emitFile({ type: 'asset', fileName: `${fileName}.br`, source: brotliCompressSync(content, { params }) });
          this.emitFile({ type: 'asset', fileName: `${fileName}.gz`, source: gzipSync(content, { level: 9 }) });
        }
      },
    },
  };
}
