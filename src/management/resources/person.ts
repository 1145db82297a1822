import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { areDistinct, body, COMMON_ANSWER, defineResource, orNull, text } from './resource.ts';

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

const members = { name: text(255).optional(), groups: Groups.optional(), dashboard: z.boolean().optional() };

export const PersonCreate = body({ email: Email, ...members });
export interface PersonCreate extends z.input<typeof PersonCreate> {
  /** With which they sign in, in any case. Policies name them by it in lower case. */
  email: string;
  /** Which policies can let in. */
  groups?: string[] | undefined;
  /** Whether they may use the dashboard, where they can do all that an API key can; false by default. */
  dashboard?: boolean | undefined;
}

export const PersonUpdate = body(members);
export interface PersonUpdate extends z.input<typeof PersonUpdate> {}

/** Somebody who signs in at this gateway. */
export const Person = z.object({
  ...COMMON_ANSWER,
  email: z.string(),
  name: z.string(),
  groups: z.array(z.string()),
  dashboard: z.boolean(),
  password_set_at: orNull(z.string()),
  passkeys: z.array(z.object({ name: z.string(), created_at: z.string() })),
});
export interface Person extends z.output<typeof Person> {
  email: string;
  /** Whether they may use the dashboard, where they can do all that an API key can. */
  dashboard: boolean;
  /** Null without a password. */
  password_set_at: string | null;
}

/** A link by which a person chooses a password or a passkey, once. It is shown only in this answer. */
export const PersonLink = z.object({
  url: z.string(),
  expires_at: z.string().meta({ description: 'RFC 3339, UTC.' }),
});
export interface PersonLink extends z.output<typeof PersonLink> {}

export const people = defineResource({
  name: 'person',
  path: '/people',
  idPrefix: 'prs_',
  create: PersonCreate,
  update: PersonUpdate,
  answer: Person,
});
