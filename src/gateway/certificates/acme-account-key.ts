import { readFile } from 'node:fs/promises';
import { writeDurably } from '../../lib/durable-write.ts';
import { hasErrno } from '../../lib/errors.ts';
import { makePrivateKey } from './private-key.ts';

/** Encrypts what lies on a disk. */
export interface Seal {
  /** @param owner what the secret belongs to; it only opens with the same owner */
  seal(plain: string, owner: string): Buffer;
  /** @throws when the box was changed, or sealed with another key */
  open(box: Buffer, owner: string): string;
}

const OWNER = 'acme-account';

/** The key that the certificate authority knows us by, made when it is first needed and kept encrypted in a file. */
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
   * @throws the system's error, or the box's when the file was sealed with another key
   */
  load(): Promise<string> {
    this.#loading ??= this.#loadOrCreate().catch((error) => {
      this.#loading = null;
      throw error;
    });
    return this.#loading;
  }

  async #loadOrCreate(): Promise<string> {
    try {
      return this.box.open(Buffer.from(await readFile(this.file, 'latin1'), 'base64'), OWNER);
    } catch (error) {
      // Any other failure must not make a new key: the account and its limits hang on the old one.
      if (!hasErrno(error, 'ENOENT')) throw error;
    }
    const privateKey = await makePrivateKey('ecdsa');
    await writeDurably(this.file, `${this.box.seal(privateKey, OWNER).toString('base64')}\n`, 0o600);
    return privateKey;
  }
}
