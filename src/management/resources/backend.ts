import { z } from 'zod';
import { refused } from './refusal.ts';
import { ANNOTATIONS_ANSWER, annotations, body, COMMON_ANSWER, orNull, Ref, text } from './resource.ts';

const MAX_BODY = 64 * 1024;
const MAX_HEADERS = 50;

/** RFC 9110, section 5.1. Responses have header names in lower case. */
const headerName = z
  .string()
  .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,255}$/, refused(6522, 'is not a header name of at most 255 characters'))
  .toLowerCase();

/** RFC 9110, section 5.5, without the obsolete bytes above ASCII. */
const headerValue = z
  .string()
  .regex(/^[\t\x20-\x7e]{0,4096}$/, refused(6523, 'must be at most 4096 printable ASCII characters'));

const responseMembers = {
  ...annotations(6503, 6504),
  body: text(MAX_BODY, 6516, 'The body of the response; empty by default.').optional(),
  headers: z
    .record(headerName, headerValue)
    .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, `has more than ${MAX_HEADERS} headers`)
    .optional()
    .describe(`Headers of the response, at most ${MAX_HEADERS}. Replaces all of them.`),
  status_code: z
    .int()
    .min(200, refused(6517, 'must be a status from 200 to 599'))
    .max(599, refused(6517, 'must be a status from 200 to 599'))
    .optional()
    .describe('The status of the response, from 200 to 599. Default: 200.'),
};

/** Defaults: an empty body and status 200. */
export const HttpResponseBackendCreate = body(responseMembers);
export type HttpResponseBackendCreate = z.input<typeof HttpResponseBackendCreate>;

export const HttpResponseBackendUpdate = HttpResponseBackendCreate;
export type HttpResponseBackendUpdate = HttpResponseBackendCreate;

export const HttpResponseBackend = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    body: z.string().default('').describe('The body of the response.'),
    headers: orNull(z.record(z.string(), z.string())).describe(
      'Headers of the response, with names in lower case; null when never set.',
    ),
    status_code: z.int().default(200).describe('The status of the response.'),
  })
  .describe('A backend that sends a fixed response to every request.');
export type HttpResponseBackend = z.output<typeof HttpResponseBackend>;

export const httpResponseBackends = {
  name: 'HTTP response backend',
  path: '/backends/http_response',
  idPrefix: 'bkdhr_',
  listKey: 'backends',
  unknownIdCode: 6514,
  create: HttpResponseBackendCreate,
  update: HttpResponseBackendUpdate,
  answer: HttpResponseBackend,
};

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

const GROUP_LABELS = 'A tunnel with all of these labels belongs to the group.';

const groupMembers = {
  ...annotations(6503, 6504),
  labels: z
    .record(key, value)
    .refine((labels) => Object.keys(labels).length <= MAX_LABELS, refused(6508, `more than ${MAX_LABELS} labels`))
    .optional()
    .describe(`${GROUP_LABELS} Replaces the whole map; at most ${MAX_LABELS}.`),
};

export const TunnelGroupBackendCreate = body(groupMembers);
export type TunnelGroupBackendCreate = z.input<typeof TunnelGroupBackendCreate>;

/** `labels` replaces the whole map. */
export const TunnelGroupBackendUpdate = TunnelGroupBackendCreate;
export type TunnelGroupBackendUpdate = TunnelGroupBackendCreate;

export const TunnelGroupBackend = z
  .object({
    ...COMMON_ANSWER,
    ...ANNOTATIONS_ANSWER,
    labels: z.record(z.string(), z.string()).default({}).describe(GROUP_LABELS),
    tunnels: z.array(Ref).default([]).describe('The online tunnels that belong to the group now.'),
  })
  .describe('A backend of all online tunnels with specific labels.');
export type TunnelGroupBackend = z.output<typeof TunnelGroupBackend>;

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
