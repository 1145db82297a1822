import { z } from 'zod';
import { ownerId } from './credential.ts';
import { refused } from './refusal.ts';
import {
  ANNOTATIONS_ANSWER,
  annotations,
  body,
  COMMON_ANSWER,
  defineResource,
  optionalIdOf,
  orNull,
  Ref,
  text,
} from './resource.ts';

const NAME_BYTES = 255;
/** The longest text that an expression can have. */
const VALUE_BYTES = 65_536;

/** @param first the code for a name with other characters; the next ones are for an empty and for a long name */
function nameOf(first: number) {
  return text(NAME_BYTES, first + 2)
    .min(1, refused(first + 1, 'must not be empty'))
    .regex(/^[\w/.-]*$/, refused(first, 'can have letters, digits and _ / . - only'));
}

const vaultName = nameOf(23_000);

export const VaultCreate = body({ ...annotations(), name: vaultName, owner_id: ownerId.optional() });
export interface VaultCreate extends z.input<typeof VaultCreate> {
  /** Unique. Policies name it: `secrets.get('name', 'secret')`. */
  name: string;
  /** A bot user whose authtokens may use the secrets in their policies. It cannot be changed later. Default: nobody's may. Not in ngrok's API. */
  owner_id?: string | undefined;
}

export const VaultUpdate = body({ ...annotations(), name: vaultName.optional() });
export interface VaultUpdate extends z.input<typeof VaultUpdate> {}

const CHANGES = { updated_at: z.string().optional() };

/** A set of secrets for policies. */
export const Vault = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  ...CHANGES,
  name: z.string(),
  owner_id: orNull(z.string()),
  created_by: orNull(z.string()),
  last_updated_by: orNull(z.string()),
});
export interface Vault extends z.output<typeof Vault> {
  /** The API key that created it. */
  created_by: string | null;
}

export const vaults = defineResource({
  name: 'vault',
  path: '/vaults',
  idPrefix: 'vault_',
  create: VaultCreate,
  update: VaultUpdate,
  answer: Vault,
  row: Vault,
});

const secretName = nameOf(24_000);
const value = text(VALUE_BYTES, 24_004).min(1, refused(24_003, 'must not be empty'));

export const SecretCreate = body({
  ...annotations(),
  name: secretName,
  value,
  vault_id: optionalIdOf('vault_'),
  vault_name: z.string().optional(),
});
export interface SecretCreate extends z.input<typeof SecretCreate> {
  /** Unique in its vault. */
  name: string;
  /** Never returned. At most 64 KiB. */
  value: string;
  /** This member or `vault_name` is required. */
  vault_id?: string | undefined;
}

export const SecretUpdate = body({ ...annotations(), name: secretName.optional(), value: value.optional() });
export interface SecretUpdate extends z.input<typeof SecretUpdate> {
  /** Policies use the new value for the next request. */
  value?: string | undefined;
}

/** A named value of a vault; the value itself is never returned. */
export const Secret = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  ...CHANGES,
  name: z.string(),
  vault: Ref,
  vault_name: z.string().optional(),
  created_by: orNull(Ref),
  last_updated_by: orNull(Ref),
});
export interface Secret extends z.output<typeof Secret> {
  /** The API key that created it. */
  created_by: Ref | null;
}

export const secrets = defineResource({
  name: 'secret',
  path: '/vault_secrets',
  idPrefix: 'secret_',
  listKey: 'secrets',
  create: SecretCreate,
  update: SecretUpdate,
  answer: Secret,
});
