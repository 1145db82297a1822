import { z } from 'zod';
import { ownerId } from './credential.ts';
import { refused } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  optionalIdOf,
  orNull,
  Ref,
  text,
  UNKNOWN_ID,
  UTC,
} from './resource.ts';

const NAME_BYTES = 255;
/** The longest text that an expression can have. */
const VALUE_BYTES = 65_536;

/** @param what describes it @param first the code for a name with other characters; the next ones are for an empty and for a long name */
function nameOf(what: string, first: number) {
  return text(NAME_BYTES, first + 2, what)
    .min(1, refused(first + 1, 'must not be empty'))
    .regex(/^[\w/.-]*$/, refused(first, 'can have letters, digits and _ / . - only'));
}

const NAME = "Unique. Policies name it: `secrets.get('name', 'secret')`.";
const vaultName = nameOf(NAME, 23_000);

export const VaultCreate = body({
  ...annotations(),
  name: vaultName,
  owner_id: ownerId
    .optional()
    .describe(
      "A bot user whose authtokens may use the secrets in their policies. It cannot be changed later. Default: nobody's may. Not in ngrok's API.",
    ),
});
export type VaultCreate = z.input<typeof VaultCreate>;

export const VaultUpdate = body({ ...annotations(), name: vaultName.optional() });
export type VaultUpdate = z.input<typeof VaultUpdate>;

const CHANGES = { updated_at: z.string().optional().describe(`When it was last changed. ${UTC}`) };
const CREATED_BY = 'The API key or person that created it; null when that is not known.';
const UPDATED_BY = 'The API key or person that last changed it; null when that is not known.';

export const Vault = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    ...CHANGES,
    name: z.string().describe(NAME),
    owner_id: orNull(z.string()).describe(
      "The bot user whose authtokens may use the secrets in their policies; null: nobody's may.",
    ),
    created_by: orNull(z.string()).describe(CREATED_BY),
    last_updated_by: orNull(z.string()).describe(UPDATED_BY),
  })
  .describe('A set of secrets for policies.');
export type Vault = z.output<typeof Vault>;

export const vaults = {
  name: 'vault',
  path: '/vaults',
  idPrefix: 'vault_',
  listKey: 'vaults',
  unknownIdCode: UNKNOWN_ID,
  create: VaultCreate,
  update: VaultUpdate,
  answer: Vault,
};

const SECRET_NAME = 'Unique in its vault.';
const secretName = nameOf(SECRET_NAME, 24_000);
const value = text(VALUE_BYTES, 24_004, 'The secret itself. Never returned.').min(
  1,
  refused(24_003, 'must not be empty'),
);

export const SecretCreate = body({
  ...annotations(),
  name: secretName,
  value,
  vault_id: optionalIdOf('vault_').describe('The vault that gets it. This member or `vault_name` is required.'),
  vault_name: z.string().optional().describe('The name of that vault, in place of `vault_id`.'),
});
export type SecretCreate = z.input<typeof SecretCreate>;

export const SecretUpdate = body({
  ...annotations(),
  name: secretName.optional(),
  value: value.optional().describe('The new value. Policies use it for the next request.'),
});
export type SecretUpdate = z.input<typeof SecretUpdate>;

export const Secret = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    ...CHANGES,
    name: z.string().describe(SECRET_NAME),
    vault: Ref.describe('The vault that has it.'),
    vault_name: z.string().optional().describe('The name of that vault.'),
    created_by: orNull(Ref).describe(CREATED_BY),
    last_updated_by: orNull(Ref).describe(UPDATED_BY),
  })
  .describe('A named value of a vault; the value itself is never returned.');
export type Secret = z.output<typeof Secret>;

export const secrets = {
  name: 'secret',
  path: '/vault_secrets',
  idPrefix: 'secret_',
  listKey: 'secrets',
  unknownIdCode: UNKNOWN_ID,
  create: SecretCreate,
  update: SecretUpdate,
  answer: Secret,
};
