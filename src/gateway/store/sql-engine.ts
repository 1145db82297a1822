import { createRequire } from 'node:module';
import type Libsql from 'libsql';
import { messageOf, OperatorError } from '../../lib/errors.ts';

const require = createRequire(import.meta.url);

/**
 * The SQL engine. It is native code, which npm installs for the machine alone on which it runs, and loaded when it is
 * called for: an agent with another gateway needs none.
 *
 * @throws {OperatorError} when there is none for this machine
 */
export function sqlEngine(): typeof Libsql {
  try {
    return require('libsql');
  } catch (error) {
    const [reason] = messageOf(error).split('\n');
    throw new OperatorError(
      `the gateway's database cannot be loaded (${reason}): install this program anew on this machine, with its optional ` +
        `dependencies; where there is none for its kind (${process.platform}-${process.arch}), an agent runs all the same, ` +
        'with a gateway elsewhere (NGROK_AUTHTOKEN, NGROK_SERVER_ADDR)',
      1,
      { cause: error },
    );
  }
}
