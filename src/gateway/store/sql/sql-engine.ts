import { createRequire } from 'node:module';
import type Libsql from 'libsql';
import { messageOf, OperatorError } from '../../../lib/errors.ts';

const require = createRequire(import.meta.url);

/**
 * Loads the SQL engine on first use: an agent without an embedded gateway does not need it. It is native code, which npm
 * installs for one platform only.
 *
 * @throws {OperatorError} when it is not installed for this machine
 */
export function sqlEngine(): typeof Libsql {
  try {
    return require('libsql');
  } catch (error) {
    const [reason] = messageOf(error).split('\n');
    throw new OperatorError(
      `cannot load the gateway's database engine (${reason}): install this program again on this machine, with optional ` +
        `dependencies; if ${process.platform}-${process.arch} is not supported, run the agent with another gateway ` +
        '(NGROK_AUTHTOKEN, NGROK_SERVER_ADDR)',
      1,
      { cause: error },
    );
  }
}
