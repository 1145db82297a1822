import { readFile } from 'node:fs/promises';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { explainUnreadable, writeDurably } from '../../../lib/files/durable-write.ts';
import { makePrivateKey } from '../issuing/private-key.ts';

/** Encrypts secrets on disk. */
export interface Seal {
  /** @param owner identifies the secret; only the same owner opens it */
  seal(plain: string, owner: string): Buffer;
  /** @throws when the box was changed, or sealed with another key */
  open(box: Buffer, owner: string): string;
}

const OWNER = 'acme-account';

/** The key of the ACME account, created on first use and kept encrypted in a file. */
export class AcmeAccountKey {
  #loading: Promise<string> | null = null;

  /** @param file its path; the folder must exist */
  constructor(
    private readonly file: string,
    private readonly box: Seal,
  ) {}

  /**
   * The key, PKCS #8 as PEM.
   *
   * @throws {OperatorError} when the file cannot be read or was encrypted with another key
   */
  load(): Promise<string> {
    this.#loading ??= this.#loadOrCreate().catch((error) => {
      this.#loading = null;
      throw error;
    });
    return this.#loading;
  }

  async #loadOrCreate(): Promise<string> {
    const sealed = await this.#read();
    if (sealed !== null) return this.#open(sealed);
    const privateKey = await makePrivateKey('ecdsa');
    await writeDurably(this.file, `${this.box.seal(privateKey, OWNER).toString('base64')}\n`, 0o600);
    return privateKey;
  }

  async #read(): Promise<string | null> {
    try {
      return await readFile(this.file, 'latin1');
    } catch (error) {
      // Any other failure must not create a new key: the account and its rate limits belong to the old one.
      if (hasErrno(error, 'ENOENT')) return null;
      throw explainUnreadable(this.file, error);
    }
  }

  #open(sealed: string): string {
    try {
      return this.box.open(Buffer.from(sealed, 'base64'), OWNER);
    } catch (error) {
      throw new OperatorError(
        `${this.file} is damaged or encrypted with another key (${messageOf(error)}): restore it from a ` +
          'backup, or remove it; the gateway then creates a new ACME account',
        1,
        { cause: error },
      );
    }
  }
}
