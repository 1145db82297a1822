import { OperatorError } from '../../lib/errors.ts';
import { validationMessage } from '../../lib/validation-messages.ts';
import { MessageRuleCreate } from '../../management/resources/message-rule.ts';
import { MESSAGE_TARGETS, type MessageTargetOf } from '../../management/resources/message-target.ts';
import { refusalOf } from '../../management/resources/refusal.ts';
import { usualRules } from '../../management/usual-rules.ts';
import type { Store } from '../store/store.ts';

/** Where mail is handed in, as a command is told. */
export interface MailServer {
  /** `smtp://user@host:587` with STARTTLS, or `smtps://user@host:465` with TLS. */
  readonly url: string;
  /** Left out: the user of the URL if that is an address, else the recipient. */
  readonly from?: string | undefined;
  readonly password?: string | undefined;
}

/** @throws {OperatorError} exit code 2 when it is no such URL, or an address is not valid */
export function emailTarget(to: string, { url, from, password }: MailServer): MessageTargetOf<'email'> {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || !['smtp:', 'smtps:'].includes(parsed.protocol) || parsed.password !== '')
    throw new OperatorError('--smtp: write it as smtps://user@mail.example.com; the password belongs into a file', 2);
  const isTls = parsed.protocol === 'smtps:';
  const username = decodeURIComponent(parsed.username);
  const members = {
    ...{ to: [to], from: from ?? (username.includes('@') ? username : to), host: parsed.hostname },
    ...{ port: parsed.port === '' ? (isTls ? 465 : 587) : Number(parsed.port), security: isTls ? 'tls' : 'starttls' },
    ...(username !== '' && { username, ...(password !== undefined && { password }) }),
  };
  const sent = MESSAGE_TARGETS.email.sent.safeParse(members, { error: validationMessage });
  if (!sent.success) throw new OperatorError(`email not usable: ${refusalOf(sent.error).text}`, 2);
  return { kind: 'email', ...sent.data };
}

/**
 * Sends messages by email from now on, by the usual rules. A gateway that has rules keeps them.
 * @returns the id of the destination; null: there are rules already
 */
export function notifyByEmail(store: Store, target: MessageTargetOf<'email'>): Promise<string | null> {
  const { database, eventDestinations, eventDeliveries, messageRules, ids, now } = store;
  return database.write(() => {
    if (messageRules.count('TRUE', []) > 0) return null;
    const id = ids.next('ed');
    const common = { created_at: now(), metadata: null };
    const destination = { ...common, id, description: null, ...eventDestinations.sealed(target, id) };
    eventDestinations.insert(destination);
    eventDeliveries.begin(destination);
    for (const rule of usualRules(id)) {
      const { description = null, metadata: _, ...body } = MessageRuleCreate.parse(rule);
      messageRules.insert({ ...common, id: ids.next('mr'), description, ...body });
    }
    return id;
  });
}
