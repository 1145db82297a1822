import type { KeyObject } from 'node:crypto';
import { z } from 'zod';
import { AcmeProblem, type CaResponse, type Conversation } from './acme-conversation.ts';
import { publicJwk, signedWith } from './signed-requests.ts';

const directory = z.object({
  newNonce: z.string(),
  newAccount: z.string(),
  newOrder: z.string(),
  revokeCert: z.string().optional(),
  keyChange: z.string().optional(),
  /** Where the CA says when to renew (RFC 9773); CAs that do not have none. */
  renewalInfo: z.string().optional(),
  meta: z
    .object({
      caaIdentities: z.array(z.string()).optional(),
      /** Names of certificate profiles, with their descriptions. */
      profiles: z.record(z.string(), z.unknown()).optional(),
    })
    .optional(),
});
export type Directory = z.output<typeof directory>;

/** Rejected nonces of one request: a CA may reject any (RFC 8555, section 6.5). */
const MAX_NONCES = 10;

/** Signed requests to a CA, in one conversation (RFC 8555, section 6). */
export class AcmeRequests {
  #nonce: string | null = null;
  #directory: Promise<Directory> | null = null;

  constructor(
    readonly conversation: Conversation,
    private readonly directoryUrl: string,
  ) {}

  directory(): Promise<Directory> {
    this.#directory ??= this.conversation
      .send(this.directoryUrl, 'GET', null)
      .then((response) => readAnswer(response, directory));
    return this.#directory;
  }

  /**
   * @param payload null: reads a resource (POST-as-GET)
   * @param kid URL of the account; null: the key itself signs
   */
  async post(url: string, payload: object | null, key: KeyObject, kid: string | null): Promise<CaResponse> {
    for (let attempt = 1; ; attempt += 1) {
      const nonce = this.#nonce ?? (await this.#freshNonce());
      this.#nonce = null;
      const by = kid === null ? { jwk: publicJwk(key) } : { kid };
      const body = JSON.stringify(signedWith(key, { ...by, nonce, url }, payload));
      try {
        const response = await this.conversation.send(url, 'POST', body);
        this.#nonce = response.headers['replay-nonce'] ?? null;
        return response;
      } catch (error) {
        if (!(error instanceof AcmeProblem)) throw error;
        this.#nonce = error.nonce;
        if (error.type !== 'badNonce' || attempt === MAX_NONCES) throw error;
      }
    }
  }

  async #freshNonce(): Promise<string> {
    const { newNonce } = await this.directory();
    const { headers, status } = await this.conversation.send(newNonce, 'HEAD', null);
    const nonce = headers['replay-nonce'];
    if (nonce === undefined) throw new AcmeProblem({ detail: 'its server sent no nonce' }, status, null);
    return nonce;
  }
}

/** Parses what a CA has sent. @throws {AcmeProblem} */
export function readAnswer<T>({ text, status }: CaResponse, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(parsedJson(text));
  if (parsed.success) return parsed.data;
  const where = parsed.error.issues[0]?.path.join('.') ?? '';
  throw new AcmeProblem(
    { detail: `its server sent a response that ACME does not know (${where || 'no JSON'})` },
    status,
    null,
  );
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
