import { createHmac, timingSafeEqual } from 'node:crypto';
import type { SecretsBox } from '../../lib/secrets-box.ts';

/** Path of the page where somebody acknowledges or silences what a message was about. */
export const MESSAGE_PATH = '/messages/';
const PURPOSE = 'links in messages';
const TOKEN = /^(evt_[0-9A-Za-z]{27})\.(\d{1,12})\.([\w-]{43})$/;

/** Signs the links in messages, which are all that it takes to acknowledge and silence what a message was about. */
export class MessageLinks {
  constructor(private readonly box: Pick<SecretsBox, 'keyFor'>) {}

  /** @param until milliseconds since the Unix epoch */
  token(messageId: string, until: number): string {
    const signed = `${messageId}.${Math.floor(until / 1000)}`;
    return `${signed}.${this.#signature(signed)}`;
  }

  /** The id of the message that a link is in; null when it was changed, or is too old. */
  messageOf(token: string, now: number): string | null {
    const [, id = '', until = '', signature = ''] = TOKEN.exec(token) ?? [];
    const expected = Buffer.from(this.#signature(`${id}.${until}`));
    const given = Buffer.from(signature);
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) return null;
    return Number(until) * 1000 > now ? id : null;
  }

  #signature(signed: string): string {
    return createHmac('sha256', this.box.keyFor(PURPOSE)).update(signed).digest('base64url');
  }
}
