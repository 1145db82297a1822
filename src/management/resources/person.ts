import { z } from 'zod';
import { areDistinct, body, text } from './members.ts';
import { refused, WRONG_VALUE } from './refusal.ts';

const MAX_GROUPS = 50;

const Email = z
  .string()
  .max(254)
  .toLowerCase()
  .pipe(z.email(refused(WRONG_VALUE, 'must be an email address')));

const Groups = z
  .array(
    z.string().regex(/^[\w.-]{1,64}$/, refused(WRONG_VALUE, 'must be letters, digits, dots, hyphens and underscores')),
  )
  .max(MAX_GROUPS)
  .refine(areDistinct, refused(WRONG_VALUE, 'has a group twice'));

const members = { name: text(255).optional(), groups: Groups.optional() };

export const PersonCreate = body({ email: Email, ...members });
export interface PersonCreate extends z.input<typeof PersonCreate> {
  /** With which they sign in, in any case. Policies name them by it in lower case. */
  email: string;
  /** Which policies can let in. */
  groups?: string[] | undefined;
}

export const PersonUpdate = body(members);
export interface PersonUpdate extends z.input<typeof PersonUpdate> {}
