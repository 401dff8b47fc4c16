package connectx

// MLX5_CMD_OP_* of linux/mlx5/mlx5_ifc.h.
const (
	opTeardownHCA   = 0x103
	opManagePages   = 0x108
	opQuerySpecial  = 0x203
	opResumePages   = 0x204
	opAllocMemic    = 0x205
	opDeallocMemic  = 0x206
	opQueryISSI     = 0x10a
	opCreateKey     = 0x200
	opQueryKey      = 0x201
	opCreateEQ      = 0x301
	opCreateCQ      = 0x400
	opQueryCQ       = 0x402
	opModifyCQ      = 0x403
	opCreateQP      = 0x500
	opDestroyQP     = 0x501
	opRst2Init      = 0x502
	opInit2RTR      = 0x503
	opRTR2RTS       = 0x504
	op2Err          = 0x507
	op2Rst          = 0x50a
	opQueryQP       = 0x50b
	opArmRQ         = 0x703
	opCreateXSRQ    = 0x705
	opQueryXSRQ     = 0x707
	opArmXSRQ       = 0x708
	opQueryVPort    = 0x750
	opQueryContext  = 0x754
	opModifyContext = 0x755
	opQueryAddress  = 0x760
	opSetAddress    = 0x761
	opVPortCounter  = 0x770
	opSetRate       = 0x780
	opAllocPD       = 0x800
	opAllocXRCD     = 0x80e
	opAttachMcast   = 0x806
	opDetachMcast   = 0x807
	opAccessReg     = 0x805
	opCreateTIR     = 0x900
	opCreateSQ      = 0x904
	opModifySQ      = 0x905
	opCreateRQ      = 0x908
	opModifyRQ      = 0x909
	opQueryRQ       = 0x90b
	opCreateRMP     = 0x90c
	opModifyRMP     = 0x90d
	opQueryRMP      = 0x90f
	opModifyTIR     = 0x901
	opCreateTIS     = 0x912
	opCreateRQT     = 0x916
	opSetRoot       = 0x92f
	opCreateTable   = 0x930
	opCreateGroup   = 0x933
	opSetFlow       = 0x936
)
