import { z } from 'zod';
import { body, orNull, text } from './members.ts';
import { refused, WRONG_VALUE } from './refusal.ts';

/** Where devices enrol, on the host of the management API; needs no API key. */
export const ENROLMENTS_PATH = '/enrolments';
/** Where a device ends its enrolment; needs no API key. */
export const LEAVE_PATH = `${ENROLMENTS_PATH}/leave`;
/** Where the gateway's CA is; needs no API key. */
export const CA_PATH = '/ca.pem';

/** 32 random bytes in base64url, made once by each installation. */
const INSTALL_KEY = /^[A-Za-z0-9_-]{43}$/;
const NO_KEY = 'must be 32 bytes in base64url';

export const EnrolmentRequest = body({
  install_key: z.string().regex(INSTALL_KEY, refused(WRONG_VALUE, NO_KEY)),
  secret: text(128).optional(),
  name: text(255).optional(),
  keep_name: z.boolean().optional(),
});
export interface EnrolmentRequest extends z.input<typeof EnrolmentRequest> {
  /**
   * Random and secret; a device that sends the same key again is the same device and needs no secret, so that a lost
   * answer does no harm.
   */
  install_key: string;
  /** The secret of the enrolment key, as the code has it. */
  secret?: string | undefined;
  /** The wanted name. A taken name gets a suffix. */
  name?: string | undefined;
  /** For a device that only wants its authtoken: it keeps the names that it had before it was renamed. */
  keep_name?: boolean | undefined;
}

/** What a device sends that leaves its site. */
export const LeaveRequest = body({ install_key: z.string().regex(INSTALL_KEY, refused(WRONG_VALUE, NO_KEY)) });

/** What a device gets when it enrols. */
export const Enrolment = z.object({
  status: z.enum(['pending', 'enrolled']),
  device_id: z.string(),
  name: z.string(),
  site: z.string(),
  domain: z.string(),
  authtoken: orNull(z.string()),
  session_address: z.string(),
  session_ca: z.enum(['gateway', 'public']),
  connector: z.string(),
  retry_after_s: orNull(z.int()),
});
export interface Enrolment extends z.output<typeof Enrolment> {
  /** `pending`: not approved yet; send the same request again after `retry_after_s`. */
  status: 'pending' | 'enrolled';
  /** Null while it is pending. */
  authtoken: string | null;
  /** Where the agent connects to: `host:port`. */
  session_address: string;
  /** Which CA signs the certificate at that address: the gateway's own, or a public one. */
  session_ca: 'gateway' | 'public';
  /** What the gateway recommends as the agent's connector. */
  connector: string;
}
