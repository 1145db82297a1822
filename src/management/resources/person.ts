import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { areDistinct, body, COMMON_ANSWER, defineResource, listFilters, orNull, text, UTC } from './resource.ts';

const MAX_GROUPS = 50;
const NAME = 'The name of the person, for people.';
const GROUPS = 'Groups of people, which policies can let in.';

const Email = z
  .string()
  .max(254)
  .toLowerCase()
  .pipe(z.email(refused(WRONG_VALUE, 'must be an email address')))
  .describe(
    'With which they sign in, in any case. Policies name them by it in lower case. It cannot be changed later.',
  );

const Groups = z
  .array(
    z.string().regex(/^[\w.-]{1,64}$/, refused(WRONG_VALUE, 'must be letters, digits, dots, hyphens and underscores')),
  )
  .max(MAX_GROUPS)
  .refine(areDistinct, refused(WRONG_VALUE, 'has a group twice'))
  .describe(`${GROUPS} At most ${MAX_GROUPS}.`);

const dashboard = z
  .boolean()
  .describe('Whether they may use the dashboard, where they can do all that an API key can; false by default.');
const members = {
  name: text(255, WRONG_VALUE, NAME).optional(),
  groups: Groups.optional(),
  dashboard: dashboard.optional(),
};

export const PersonCreate = body({ email: Email, ...members });
export type PersonCreate = z.input<typeof PersonCreate>;

export const PersonUpdate = body(members);
export type PersonUpdate = z.input<typeof PersonUpdate>;

export const Person = z
  .object({
    ...COMMON_ANSWER,
    email: z.string().describe('With which they sign in, in lower case.'),
    name: z.string().describe(`${NAME} Empty when it was never set.`),
    groups: z.array(z.string()).describe(GROUPS),
    dashboard,
    password_set_at: orNull(z.string()).describe(`When they have chosen their password; null without one. ${UTC}`),
    passkeys: z
      .array(
        z.object({
          name: z.string().describe('What the person, or their browser, calls it.'),
          created_at: z.string().describe(`When they have added it. ${UTC}`),
        }),
      )
      .describe('Their passkeys.'),
  })
  .describe('Somebody who signs in at this gateway.');
export type Person = z.output<typeof Person>;

export const PersonLink = z
  .object({
    url: z.string().describe('The link itself, for this person only.'),
    expires_at: z.string().describe(`When the link ends. ${UTC}`),
  })
  .describe('A link by which a person chooses a password or a passkey, once. It is shown only in this answer.');
export type PersonLink = z.output<typeof PersonLink>;

export const PersonFilters = listFilters('id, email address, name or groups', ['email', 'name'], {});

export const people = defineResource({
  name: 'person',
  path: '/people',
  idPrefix: 'prs_',
  create: PersonCreate,
  update: PersonUpdate,
  answer: Person,
  filters: PersonFilters,
});
