import type { Client } from 'acme-client';
import { z } from 'zod';
import type { AcmeSettings } from '../../../settings/certificate-settings.ts';
import type { AcmeAccountKey } from './acme-account-key.ts';
import type { Conversation } from './acme-conversation.ts';

export type AcmeAuthorityOptions = Pick<AcmeSettings, 'directoryUrl' | 'contactEmail' | 'externalAccountBinding'>;

const directory = z.object({ meta: z.object({ caaIdentities: z.array(z.string()).optional() }).optional() });

/** A certificate authority and our account with it. */
export class AcmeAuthority {
  /** What the authority calls our account; learnt anew by each process, which also tells whether it still exists. */
  #accountUrl: string | null = null;
  #registering: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly options: AcmeAuthorityOptions,
    private readonly key: AcmeAccountKey,
  ) {}

  /** A client that is registered, for use inside the conversation. */
  async client({ acme }: Conversation): Promise<Client> {
    const { directoryUrl, externalAccountBinding } = this.options;
    const accountKey = await this.key.load();
    const options = { directoryUrl, accountKey, ...(externalAccountBinding && { externalAccountBinding }) };
    const accountUrl = this.#accountUrl ?? (await this.#oneByOne(() => this.#register(new acme.Client(options))));
    return new acme.Client({ ...options, accountUrl });
  }

  /** The names that CAA records call the authority by; empty when it does not tell. */
  async caaIdentities({ acme }: Conversation): Promise<string[]> {
    const { data } = await acme.axios.get<unknown>(this.options.directoryUrl);
    const { success, data: read } = directory.safeParse(data);
    return (success && read.meta?.caaIdentities) || [];
  }

  /** To be called when the authority says that there is no such account: the next client registers it again. */
  forgetAccount(): void {
    this.#accountUrl = null;
  }

  /** A key that the authority knows gives the same account again (RFC 8555, section 7.3). */
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

  /** Two first orders at once make one account. */
  #oneByOne<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#registering.then(work);
    this.#registering = run.catch(() => {});
    return run;
  }
}
