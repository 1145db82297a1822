import type { KeyObject } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import { hasErrno, messageOf, OperatorError } from '../../../lib/errors.ts';
import { explainUnreadable, writeDurably } from '../../../lib/files/durable-write.ts';
import type { SecretsBox } from '../../../lib/secrets-box.ts';
import { readPrivateKey } from '../../../lib/tls/usual-keys.ts';
import type { AcmeSettings } from '../../../settings/certificate-settings.ts';
import type { Database } from '../../store/sql/database.ts';
import { ACME_ACCOUNT } from '../../store/stored-secrets.ts';
import { parseFact } from '../../store/update-facts.ts';
import { forgetNextKey } from '../certificate-errands.ts';
import { makePrivateKey } from '../issuing/certificate-issuer.ts';
import { AcmeProblem, type CaResponse, type Conversation, isRefusedForGood } from './acme-conversation.ts';
import { AcmeRequests } from './acme-requests.ts';
import { boundTo, publicJwk, signedWith, thumbprint } from './signed-requests.ts';

export type AcmeCaOptions = Pick<AcmeSettings, 'directoryUrl' | 'contactEmail' | 'externalAccountBinding'>;

type Facts = Pick<Database, 'fact' | 'setFact' | 'forgetFact' | 'write'>;

/** An account at a CA, in one conversation. */
export class AcmeAccount {
  constructor(
    readonly requests: AcmeRequests,
    readonly url: string,
    readonly key: KeyObject,
  ) {}

  /** @param payload null: reads a resource (POST-as-GET) */
  post(url: string, payload: object | null): Promise<CaResponse> {
    return this.requests.post(url, payload, this.key, this.url);
  }

  /** The key authorization of a challenge (RFC 8555, section 8.1). */
  keyAuthorization(token: string): string {
    return `${token}.${thumbprint(this.key)}`;
  }
}

/** Row of `facts` with what is known of the account at each CA, by the URL of its directory. */
const ACCOUNTS = 'acme_accounts';

const knownAccount = z.object({ url: z.string(), key: z.string(), contact: z.string().nullable() });
/** `key`: the thumbprint of its key; another key has another account. `contact`: what the CA was told last. */
type KnownAccount = z.output<typeof knownAccount>;

/**
 * A certificate authority, and the account there. It is registered once, and found again by its key; its URL is kept, because some
 * CAs take an external account binding only once.
 */
export class AcmeCa {
  #turn: Promise<unknown> = Promise.resolve();
  /** Where no database keeps it. */
  #known: Record<string, KnownAccount> = {};

  /**
   * @param facts null: the account is looked up once in each process
   * @param next the key that the account is to have, as PEM; null: the one that it has
   */
  constructor(
    readonly options: AcmeCaOptions,
    private readonly key: AcmeAccountKey,
    private readonly facts: Facts | null = null,
    private readonly next: () => string | null = () => null,
  ) {}

  requests(conversation: Conversation): AcmeRequests {
    return new AcmeRequests(conversation, this.options.directoryUrl);
  }

  /** Concurrent first orders share one account. */
  account(requests: AcmeRequests): Promise<AcmeAccount> {
    const run = this.#turn.then(() => this.#account(requests));
    this.#turn = run.catch(() => {});
    return run;
  }

  /**
   * Changes the account's key to the next one (RFC 8555, section 7.3.5).
   *
   * @returns why the CA refuses it for good; null: it is changed
   */
  changeKey(requests: AcmeRequests): Promise<string | null> {
    const run = this.#turn.then(() => this.#changeKey(requests));
    this.#turn = run.catch(() => {});
    return run;
  }

  async #changeKey(requests: AcmeRequests): Promise<string | null> {
    const pem = this.next();
    if (pem === null || (await this.#changedBefore(requests, pem)) !== null) return null;
    const { keyChange } = await requests.directory();
    if (keyChange === undefined) return 'it does not change keys of accounts';
    const account = await this.#withKey(requests);
    const next = readPrivateKey(pem);
    const change = { account: account.url, oldKey: publicJwk(account.key) };
    try {
      await account.post(keyChange, signedWith(next, { jwk: publicJwk(next), url: keyChange }, change));
    } catch (error) {
      if (!(error instanceof AcmeProblem)) throw error;
      if (error.type === 'accountDoesNotExist') await this.forgetAccount();
      if (isRefusedForGood(error)) return error.message;
      throw error;
    }
    await this.#goOnWith(requests, pem, account.url);
    return null;
  }

  async #account(requests: AcmeRequests): Promise<AcmeAccount> {
    const next = this.next();
    if (next === null) return this.#withKey(requests);
    const account = await this.#changedBefore(requests, next).catch((error) => {
      // Orders do not depend on the next key.
      if (error instanceof AcmeProblem) return null;
      throw error;
    });
    return account ?? this.#withKey(requests);
  }

  /**
   * The account, when the CA has changed its key already: the process that asked for it ended before it could write that.
   * null: it has the old key.
   */
  async #changedBefore(requests: AcmeRequests, pem: string): Promise<AcmeAccount | null> {
    const { newAccount } = await requests.directory();
    const url = await existingAccount(requests, newAccount, readPrivateKey(pem)).catch((error) => {
      // Some CAs want an external account binding from any key that has no account.
      if (error instanceof AcmeProblem && isRefusedForGood(error)) return null;
      throw error;
    });
    return url === null ? null : this.#goOnWith(requests, pem, url);
  }

  /** The account with its next key, which is kept from now on. */
  async #goOnWith(requests: AcmeRequests, pem: string, url: string): Promise<AcmeAccount> {
    const next = readPrivateKey(pem);
    await this.key.replace(pem);
    await this.#remember({
      url,
      key: thumbprint(next),
      contact: this.#accounts()[this.options.directoryUrl]?.contact ?? null,
    });
    const { facts } = this;
    await facts?.write(() => forgetNextKey(facts));
    return new AcmeAccount(requests, url, next);
  }

  async #withKey(requests: AcmeRequests): Promise<AcmeAccount> {
    const { contactEmail: contact } = this.options;
    const key = readPrivateKey(await this.key.load());
    const print = thumbprint(key);
    const known = this.#accounts()[this.options.directoryUrl];
    const url = known?.key === print ? known.url : await this.#register(requests, key);
    const account = new AcmeAccount(requests, url, key);
    if (known?.key === print && known.contact === contact) return account;
    // CAs refuse an update that changes nothing.
    if (known?.key === print) await account.post(url, { contact: contact === null ? [] : [`mailto:${contact}`] });
    await this.#remember({ url, key: print, contact });
    return account;
  }

  /** Call this when the CA reports an unknown account: the next order registers again. */
  async forgetAccount(): Promise<void> {
    await this.#remember(null);
  }

  /** The URL of the key's account (RFC 8555, section 7.3.1), which is new at first. */
  async #register(requests: AcmeRequests, key: KeyObject): Promise<string> {
    const { contactEmail, externalAccountBinding } = this.options;
    const { newAccount } = await requests.directory();
    const existing = await existingAccount(requests, newAccount, key);
    if (existing !== null) return existing;
    const payload = {
      termsOfServiceAgreed: true,
      ...(contactEmail !== null && { contact: [`mailto:${contactEmail}`] }),
      ...(externalAccountBinding && { externalAccountBinding: boundTo(externalAccountBinding, newAccount, key) }),
    };
    return accountOf(await requests.post(newAccount, payload, key, null));
  }

  #accounts(): Record<string, KnownAccount> {
    if (this.facts === null) return this.#known;
    return parseFact(z.record(z.string(), knownAccount), this.facts.fact(ACCOUNTS)) ?? {};
  }

  async #remember(account: KnownAccount | null): Promise<void> {
    const { facts } = this;
    const { directoryUrl } = this.options;
    const { [directoryUrl]: _, ...others } = this.#accounts();
    const changed = account === null ? others : { ...others, [directoryUrl]: account };
    if (facts === null) this.#known = changed;
    else await facts.write(() => facts.setFact(ACCOUNTS, JSON.stringify(changed)));
  }
}

async function existingAccount(requests: AcmeRequests, newAccount: string, key: KeyObject): Promise<string | null> {
  try {
    return accountOf(await requests.post(newAccount, { onlyReturnExisting: true }, key, null));
  } catch (error) {
    if (error instanceof AcmeProblem && error.type === 'accountDoesNotExist') return null;
    throw error;
  }
}

function accountOf({ headers, status }: CaResponse): string {
  if (headers.location !== undefined) return headers.location;
  throw new AcmeProblem({ detail: 'its server did not name the account' }, status, null);
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
  /** The encrypted key in the shared database at that time: another gateway may change it. */
  #sealed: string | null = null;

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
    const sealed = this.shared?.fact(FACT) ?? null;
    if (this.#loading !== null && this.#sealed === sealed) return this.#loading;
    const loading = this.#loadOrCreate().catch((error) => {
      if (this.#loading === loading) this.#loading = null;
      throw error;
    });
    this.#sealed = sealed;
    this.#loading = loading;
    return loading;
  }

  /** Goes on with another key, as PEM. */
  async replace(key: string): Promise<void> {
    const { file, shared } = this;
    const sealed = this.box.seal(key, ACME_ACCOUNT).toString('base64');
    if (shared !== null) await shared.write(() => shared.setFact(FACT, sealed));
    await writeDurably(file, `${sealed}\n`, 0o600);
    this.#sealed = shared === null ? null : sealed;
    this.#loading = Promise.resolve(key);
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
