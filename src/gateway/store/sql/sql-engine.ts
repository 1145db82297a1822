import { createRequire } from 'node:module';
import type Libsql from 'libsql';
import { messageOf, OperatorError } from '../../../lib/errors.ts';

const require = createRequire(import.meta.url);

/**
 * Loads the SQL engine on first use: an agent without an embedded gateway needs none. It is native code for one platform
 * only.
 * @throws {OperatorError} when it is not installed for this machine
 */
export function sqlEngine(): typeof Libsql {
  try {
    return require('libsql');
  } catch (error) {
    const [reason] = messageOf(error).split('\n');
    throw new OperatorError(
      `cannot load the gateway's database engine (${reason}): install device-agent again on this machine, ` +
        `without --omit=optional; if ${process.platform}-${process.arch} is not supported, use a gateway elsewhere (NGROK_SERVER_ADDR)`,
      1,
      { cause: error },
    );
  }
}

/** The values of columns. Flags are stored as 0 and 1, times as text. */
export type SqlValue = string | number | bigint | boolean | Uint8Array | Date | null;

export class PreparedStatements {
  readonly #known = new Map<string, { statement: Libsql.Statement; parameters: number }>();

  /** @param rows how rows are returned: as objects keyed by column, or as arrays of values */
  constructor(
    private readonly engine: Libsql.Database,
    private readonly rows: 'objects' | 'values',
  ) {}

  /** @throws when the number of parameters, bound with {@link bind}, does not match the placeholders */
  prepare(sql: string, parameters: readonly SqlValue[]): Libsql.Statement {
    let prepared = this.#known.get(sql);
    if (!prepared) {
      const statement = this.engine.prepare(sql);
      prepared = {
        statement: this.rows === 'values' ? statement.raw() : statement,
        parameters: sql.split('?').length - 1,
      };
      this.#known.set(sql, prepared);
    }
    // The engine silently accepts any number of parameters.
    if (prepared.parameters !== parameters.length) {
      throw new Error(`${parameters.length} parameters for ${prepared.parameters} placeholders in: ${sql}`);
    }
    return prepared.statement;
  }

  clear(): void {
    this.#known.clear();
  }
}

/**
 * Converts values for the engine. A boolean, a Date, or a Uint8Array that is not a Buffer would abort the process
 * (tursodatabase/libsql-js issues 60 and 114).
 */
export function bind(parameters: readonly SqlValue[]): (string | number | bigint | Buffer | null)[] {
  return parameters.map((value) => {
    if (value === null) return null;
    switch (typeof value) {
      case 'string':
        // The engine would silently truncate it there.
        if (value.includes('\0')) throw new TypeError('cannot store text with a NUL character');
        return value;
      case 'number':
      case 'bigint':
        return value;
      case 'boolean':
        return value ? 1 : 0;
      default:
        if (value instanceof Date) return value.getTime();
        if (Buffer.isBuffer(value)) return value;
        if (value instanceof Uint8Array) return Buffer.from(value);
        throw new TypeError(`cannot store a value of type ${typeof value}`);
    }
  });
}
