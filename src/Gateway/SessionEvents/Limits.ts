// Without imports: the thread that writes histories imports this file, and `effect` would take 40 MB there.

/** Maximum number of receipts of one session. */
export const maxReceipts = 10_000
