import type { Client } from 'acme-client';
import { z } from 'zod';
import type { AcmeSettings } from '../../../settings/certificate-settings.ts';
import type { AcmeAccountKey } from './acme-account-key.ts';
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

  /** A client with a registered account, for use inside the conversation. */
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
