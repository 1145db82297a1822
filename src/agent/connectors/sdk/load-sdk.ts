import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/**
 * Loads the SDK. Call it before the first `import` of a module that needs the SDK: when that fails, Node.js 20 rejects a
 * second promise that nobody can handle, and the process ends.
 *
 * @throws {Error} when the SDK has no binary for this platform
 */
export function loadSdk(): void {
  require('@ngrok/ngrok');
}
