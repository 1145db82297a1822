import { readFile, stat } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import type { AsnResponse, CityResponse, Reader } from 'maxmind';
import { messageOf, OperatorError } from '../../lib/errors.ts';
import type { Log } from '../../lib/log/log.ts';
import type { AddressRecords } from '../../traffic-policy/scope/connection-variables.ts';

/** Paths of MMDB files; null: none. */
export interface AddressDatabasePaths {
  /** Cities or countries. */
  geo: string | null;
  /** Autonomous systems. */
  asn: string | null;
}

const REFRESH_MS = 60_000;

/** An MMDB file, which the operator may replace. */
class AddressDatabase<T extends CityResponse | AsnResponse> {
  #reader: Reader<T> | null = null;
  #seen = '';

  constructor(
    private readonly path: string,
    private readonly log: Log,
  ) {}

  /** @throws Error when the file is unreadable or not MMDB */
  async load(): Promise<void> {
    const { mtimeMs, size, ino } = await stat(this.path);
    const state = `${ino} ${mtimeMs} ${size}`;
    if (state === this.#seen) return;
    // Remembered even if it is unusable: it is read again once it has changed.
    this.#seen = state;
    // Loaded on demand: few gateways have such files.
    const { Reader: MmdbReader } = await import('maxmind');
    this.#reader = new MmdbReader<T>(await readFile(this.path));
  }

  /** Reads a file that was replaced; one that is unusable leaves what was read before. */
  async refresh(): Promise<void> {
    try {
      await this.load();
    } catch (error) {
      this.log.warn(
        { file: this.path, reason: messageOf(error) },
        'address database unusable; keeping the one in memory',
      );
    }
  }

  find(address: string): T | null {
    const reader = this.#reader;
    // The library would read an IPv6 address as another one.
    if (reader === null || (reader.metadata.ipVersion === 4 && isIPv6(address))) return null;
    return reader.get(address);
  }
}

/** Where addresses are, and whose networks they belong to, for the variables of policies. */
export class AddressDatabases {
  readonly #geo: AddressDatabase<CityResponse> | null;
  readonly #asn: AddressDatabase<AsnResponse> | null;
  #timer: NodeJS.Timeout | null = null;

  private constructor({ geo, asn }: AddressDatabasePaths, log: Log) {
    this.#geo = geo === null ? null : new AddressDatabase(geo, log);
    this.#asn = asn === null ? null : new AddressDatabase(asn, log);
  }

  /** @throws {OperatorError} when a file is unusable: policies would decide without it */
  static async open(paths: AddressDatabasePaths, log: Log): Promise<AddressDatabases> {
    const databases = new AddressDatabases(paths, log);
    try {
      await Promise.all([databases.#geo?.load(), databases.#asn?.load()]);
    } catch (error) {
      throw new OperatorError(
        `cannot use GATEWAY_GEO_DATABASE or GATEWAY_ASN_DATABASE: ${messageOf(error)}; give an MMDB file, or remove the setting`,
      );
    }
    databases.#timer = setInterval(() => void databases.refresh(), REFRESH_MS).unref();
    return databases;
  }

  /** Reads files that were replaced, as it does every minute. */
  async refresh(): Promise<void> {
    await Promise.all([this.#geo?.refresh(), this.#asn?.refresh()]);
  }

  find(address: string): AddressRecords {
    return { location: this.#geo?.find(address) ?? null, network: this.#asn?.find(address) ?? null };
  }

  close(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
  }
}
