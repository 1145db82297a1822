import { readFile } from 'node:fs/promises';
import type { Client } from 'acme-client';
import { z } from 'zod';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { explainUnreadable, writeDurably } from '../../../lib/files/durable-write.ts';
import { readPrivateKey } from '../../../lib/network/usual-keys.ts';
import type { SecretsBox } from '../../../lib/secrets-box.ts';
import type { AcmeSettings } from '../../../settings/certificate-settings.ts';
import type { Database } from '../../store/sql/database.ts';
import { ACME_ACCOUNT } from '../../store/stored-secrets.ts';
import { makePrivateKey } from '../issuing/certificate-issuer.ts';
import type { Conversation } from './acme-conversation.ts';

export type AcmeCaOptions = Pick<AcmeSettings, 'directoryUrl' | 'contactEmail' | 'externalAccountBinding'>;

const directory = z.object({ meta: z.object({ caaIdentities: z.array(z.string()).optional() }).optional() });

export class AcmeCa {
  /** URL of the account. Each process asks for it again, because the account may no longer exist. */
  #accountUrl: string | null = null;
  #registering: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly options: AcmeCaOptions,
    private readonly key: AcmeAccountKey,
  ) {}

  async client({ acme }: Conversation): Promise<Client> {
    const { directoryUrl, externalAccountBinding } = this.options;
    const accountKey = await this.key.load();
    const options = { directoryUrl, accountKey, ...(externalAccountBinding && { externalAccountBinding }) };
    const accountUrl = this.#accountUrl ?? (await this.#oneByOne(() => this.#register(new acme.Client(options))));
    return new acme.Client({ ...options, accountUrl });
  }

  /** The CA's names in CAA records; empty when its directory has none. */
  async caaIdentities({ acme }: Conversation): Promise<string[]> {
    const { data } = await acme.axios.get<unknown>(this.options.directoryUrl);
    const { success, data: read } = directory.safeParse(data);
    return (success && read.meta?.caaIdentities) || [];
  }

  /** Call this when the CA reports an unknown account: the next client registers again. */
  forgetAccount(): void {
    this.#accountUrl = null;
  }

  /** For a known key, the CA returns the existing account (RFC 8555, section 7.3). */
  async #register(client: Client): Promise<string> {
    if (this.#accountUrl !== null) return this.#accountUrl;
    const { contactEmail } = this.options;
    await client.createAccount({
      termsOfServiceAgreed: true,
      ...(contactEmail !== null && { contact: [`mailto:${contactEmail}`] }),
    });
    this.#accountUrl = client.getAccountUrl();
    return this.#accountUrl;
  }

  /** Concurrent first orders share one account. */
  #oneByOne<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#registering.then(work);
    this.#registering = run.catch(() => {});
    return run;
  }
}

export type KeySeal = Pick<SecretsBox, 'seal' | 'open'>;

/** Row of `facts`. */
const FACT = 'acme_account_key';
const IN_DATABASE = "the ACME account's key in the shared database";

/**
 * The key of the ACME account, created on first use and kept encrypted in a file. Gateways that share a database have one account:
 * CAs count them, and some allow one for each external account binding.
 */
export class AcmeAccountKey {
  #loading: Promise<string> | null = null;

  /**
   * @param file its path; the folder must exist
   * @param shared the database that the gateway shares with others; null: none
   */
  constructor(
    private readonly file: string,
    private readonly box: KeySeal,
    private readonly shared: Pick<Database, 'fact' | 'setFact' | 'write'> | null = null,
  ) {}

  /** PKCS #8 as PEM. @throws {OperatorError} when the file cannot be read or was encrypted with another key */
  load(): Promise<string> {
    this.#loading ??= this.#loadOrCreate().catch((error) => {
      this.#loading = null;
      throw error;
    });
    return this.#loading;
  }

  async #loadOrCreate(): Promise<string> {
    const { file, shared } = this;
    const own = await this.#read();
    const known = shared?.fact(FACT) ?? null;
    const sealed = known ?? own ?? this.box.seal(await makePrivateKey('ecdsa'), ACME_ACCOUNT).toString('base64');
    const key = this.#open(sealed, known === null ? file : IN_DATABASE);
    // Also after the encryption key was changed.
    if (own?.trim() !== sealed.trim()) await writeDurably(file, `${sealed.trim()}\n`, 0o600);
    if (shared === null || known !== null) return key;
    await shared.write(() => {
      // Several gateways may have none at once: one of them is the first.
      if (shared.fact(FACT) === null) shared.setFact(FACT, sealed.trim());
    });
    return this.#open(shared.fact(FACT) ?? sealed, IN_DATABASE);
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

  #open(sealed: string, place: string): string {
    const key = this.#unsealed(sealed, place);
    try {
      readPrivateKey(key);
    } catch (error) {
      const advice = 'restore it from a backup, or remove it; the gateway then creates a new ACME account';
      throw new OperatorError(`the key in ${place} ${messageOf(error)}: ${advice}`, 1);
    }
    return key;
  }

  #unsealed(sealed: string, place: string): string {
    try {
      return this.box.open(Buffer.from(sealed, 'base64'), ACME_ACCOUNT);
    } catch (error) {
      throw new OperatorError(
        `${place} is damaged or encrypted with another key (${messageOf(error)}): restore it from a ` +
          'backup, or remove it; the gateway then creates a new ACME account',
        1,
        { cause: error },
      );
    }
  }
}
