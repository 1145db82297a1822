import type Libsql from 'libsql';

/** What a column may be set to. Flags are stored as 0 and 1, times as text. */
export type SqlValue = string | number | bigint | boolean | Uint8Array | Date | null;

/** Statements, each prepared when it is first needed and then kept. */
export class PreparedStatements {
  readonly #engine: Libsql.Database;
  readonly #rows: 'objects' | 'values';
  readonly #known = new Map<string, { statement: Libsql.Statement; parameters: number }>();

  /** @param rows how they give rows: as objects keyed by column, or as lists of the columns' values */
  constructor(engine: Libsql.Database, rows: 'objects' | 'values') {
    this.#engine = engine;
    this.#rows = rows;
  }

  /**
   * @param parameters what it is to be run with, by way of {@link bind}
   * @throws when they are not as many as it has places
   */
  prepare(sql: string, parameters: readonly SqlValue[]): Libsql.Statement {
    let prepared = this.#known.get(sql);
    if (!prepared) {
      const statement = this.#engine.prepare(sql);
      prepared = {
        statement: this.#rows === 'values' ? statement.raw() : statement,
        parameters: sql.split('?').length - 1,
      };
      this.#known.set(sql, prepared);
    }
    // The engine accepts any number of parameters, silently.
    if (prepared.parameters !== parameters.length) {
      throw new Error(`${parameters.length} parameters for ${prepared.parameters} places in: ${sql}`);
    }
    return prepared.statement;
  }

  clear(): void {
    this.#known.clear();
  }
}

/**
 * Turns values into what the engine can bind. A boolean, a Date, or a Uint8Array that is no Buffer would abort the
 * whole process (tursodatabase/libsql-js issues 60 and 114).
 */
export function bind(parameters: readonly SqlValue[]): (string | number | bigint | Buffer | null)[] {
  return parameters.map((value) => {
    if (value === null) return null;
    switch (typeof value) {
      case 'string':
        // The engine would cut it off there, silently.
        if (value.includes('\0')) throw new TypeError('cannot store a text with a NUL character');
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
