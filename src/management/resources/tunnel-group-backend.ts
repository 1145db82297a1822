import { z } from 'zod';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, Ref } from './members.ts';
import { refused } from './refusal.ts';

const MAX_LABELS = 50;

function isShort(value: string): boolean {
  return Buffer.byteLength(value) <= 255;
}

const key = z
  .string()
  .min(1, refused(6509, 'a label needs a key'))
  .refine(isShort, refused(6509, 'the key is longer than 255 bytes'))
  .refine((value) => !value.includes('='), refused(6531, 'the key must not contain ='));

const value = z
  .string()
  .refine(isShort, refused(6510, 'the value is longer than 255 bytes'))
  .refine((text) => !text.includes('='), refused(6531, 'the value must not contain ='));

const members = {
  ...annotations(6503, 6504),
  labels: z
    .record(key, value)
    .refine((labels) => Object.keys(labels).length <= MAX_LABELS, refused(6508, `more than ${MAX_LABELS} labels`))
    .optional(),
};

export const TunnelGroupBackendCreate = body(members);
export interface TunnelGroupBackendCreate extends z.input<typeof TunnelGroupBackendCreate> {
  /** A tunnel with all of these labels belongs to the group. */
  labels?: Record<string, string> | undefined;
}

/** `labels` replaces the whole map. */
export const TunnelGroupBackendUpdate = TunnelGroupBackendCreate;
export interface TunnelGroupBackendUpdate extends TunnelGroupBackendCreate {}

/** A backend of all online tunnels with specific labels. */
export const TunnelGroupBackend = z.object({
  ...COMMON_ANSWER,
  ...ANNOTATIONS_ANSWER,
  labels: z.record(z.string(), z.string()).default({}),
  tunnels: z.array(Ref).default([]),
});
export interface TunnelGroupBackend extends z.output<typeof TunnelGroupBackend> {
  tunnels: Ref[];
}

export const tunnelGroupBackends = {
  name: 'tunnel group backend',
  path: '/backends/tunnel_group',
  idPrefix: 'bkdtg_',
  listKey: 'backends',
  unknownIdCode: 6514,
  create: TunnelGroupBackendCreate,
  update: TunnelGroupBackendUpdate,
  answer: TunnelGroupBackend,
};
